/** Counts by second as a fixed number of bars. Pure. */
import type { Count } from "./useLogLines";

const BARS = 120;

export interface DensityBars {
  readonly first: number;
  readonly last: number;
  readonly bars: readonly Count[];
  readonly most: number;
  readonly serious: number;
}

/** Return the bars; null where all lines are of one second. */
export function densityOf(counts: ReadonlyMap<number, Count>): DensityBars | null {
  let [first, last] = [Infinity, -Infinity];
  for (const second of counts.keys()) {
    first = Math.min(first, second);
    last = Math.max(last, second);
  }
  if (!(last > first)) return null;
  const width = Math.max(1, (last - first + 1) / BARS);
  const bars: Count[] = Array.from({ length: Math.ceil((last - first + 1) / width) }, () => ({ all: 0, serious: 0 }));
  for (const [second, count] of counts) {
    const index = Math.floor((second - first) / width);
    const bar = bars[index] ?? { all: 0, serious: 0 };
    bars[index] = { all: bar.all + count.all, serious: bar.serious + count.serious };
  }
  return { first, last, bars, most: Math.max(1, ...bars.map((bar) => bar.all)), serious: bars.reduce((sum, bar) => sum + bar.serious, 0) };
}
