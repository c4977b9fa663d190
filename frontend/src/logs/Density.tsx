import { clockSeconds } from "../lib/time";
import { plural } from "../lib/format";
import { usePreferences } from "../shell/preferences";
import { densityOf, type Count } from "./density";
import styles from "./logs.module.css";

const HEIGHT = 24;

interface Props {
  counts: ReadonlyMap<number, Count>;
  onJump: (second: number) => void;
}

/** How many lines came when, and where the errors are; a click goes there. The keys n and p do the same from error to error. */
export function Density({ counts, onJump }: Props) {
  const { zone } = usePreferences();
  const density = densityOf(counts);
  if (!density) return null;
  const { first, last, bars, most, serious } = density;
  const label = `Log volume ${clockSeconds(first * 1000, zone)}–${clockSeconds(last * 1000, zone)}, ${plural(serious, "warning or error", "warnings and errors")}`;
  return (
    <svg
      className={styles["density"]}
      role="img"
      aria-label={label}
      viewBox={`0 0 ${bars.length} ${HEIGHT}`}
      preserveAspectRatio="none"
      onClick={(event) => {
        const box = event.currentTarget.getBoundingClientRect();
        onJump(first + ((event.clientX - box.left) / box.width) * (last - first));
      }}
    >
      <title>{label}</title>
      {bars.map((bar, index) => {
        if (!bar.all) return null;
        const height = Math.max(2, (HEIGHT * Math.log1p(bar.all)) / Math.log1p(most));
        return (
          <g key={index}>
            <rect x={index} y={HEIGHT - height} width={0.9} height={height} className={styles["bar"]} />
            {bar.serious ? <rect x={index} y={0} width={0.9} height={HEIGHT} className={styles[bar.errors ? "errorBar" : "warningBar"]} /> : null}
          </g>
        );
      })}
    </svg>
  );
}
