import { clock } from "../words";
import type { Count } from "./useLines";

const PARTS = 120;
const HEIGHT = 28;

interface Props {
  counts: ReadonlyMap<number, Count>;
  onJump: (second: number) => void;
}

/** How many lines came when, and when the errors did; a click goes there. N and P do the same from error to error. */
export function Density({ counts, onJump }: Props) {
  const seconds = [...counts.keys()];
  if (seconds.length < 2) return null;
  let [first, last] = [Infinity, -Infinity];
  for (const one of seconds) {
    first = Math.min(first, one);
    last = Math.max(last, one);
  }
  const width = Math.max(1, (last - first + 1) / PARTS);
  const parts = new Map<number, Count>();
  for (const [second, count] of counts) {
    const at = Math.floor((second - first) / width);
    const old = parts.get(at) ?? { all: 0, bad: 0 };
    parts.set(at, { all: old.all + count.all, bad: old.bad + count.bad });
  }
  let most = 1;
  let bad = 0;
  for (const one of parts.values()) {
    most = Math.max(most, one.all);
    bad += one.bad;
  }
  const words = `Lines from ${clock(first * 1000)} to ${clock(last * 1000)}; ${bad} warnings and errors`;
  return (
    <svg
      className="density"
      role="img"
      aria-label={words}
      viewBox={`0 0 ${PARTS} ${HEIGHT}`}
      preserveAspectRatio="none"
      onClick={(event) => {
        const box = event.currentTarget.getBoundingClientRect();
        onJump(first + ((event.clientX - box.left) / box.width) * (last - first + 1));
      }}
    >
      <title>{words}</title>
      {[...parts].map(([at, one]) => {
        const high = Math.max(2, (HEIGHT * Math.log1p(one.all)) / Math.log1p(most));
        return (
          <g key={at}>
            <rect x={at} y={HEIGHT - high} width={0.9} height={high} className="density-all" />
            {one.bad ? <rect x={at} y={0} width={0.9} height={HEIGHT} className="density-bad" /> : null}
          </g>
        );
      })}
    </svg>
  );
}
