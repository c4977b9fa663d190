/** Counts by tenth of a second as a fixed number of bars. Pure. */

export interface Count {
  readonly all: number;
  /** Warnings and errors. */
  readonly serious: number;
  readonly errors: number;
}

/** How long the lines of one count were written, in milliseconds. */
export const COUNT_MS = 100;

const BARS = 120;
const LEAST_MOMENTS = 10; // a second

export interface DensityBars {
  /** When the first and the last bar begin and end, in seconds since 1970. */
  readonly first: number;
  readonly last: number;
  readonly bars: readonly Count[];
  readonly most: number;
  readonly serious: number;
}

const NONE: Count = { all: 0, serious: 0, errors: 0 };
const seconds = (moment: number): number => (moment * COUNT_MS) / 1000;

/** Return the bars; null where all lines are of one second. */
export function densityOf(counts: ReadonlyMap<number, Count>): DensityBars | null {
  let [first, last] = [Infinity, -Infinity];
  for (const moment of counts.keys()) {
    first = Math.min(first, moment);
    last = Math.max(last, moment);
  }
  if (!(last - first >= LEAST_MOMENTS)) return null;
  const width = Math.max(1, (last - first + 1) / BARS);
  const bars: Count[] = Array.from({ length: Math.ceil((last - first + 1) / width) }, () => NONE);
  for (const [moment, count] of counts) {
    const index = Math.floor((moment - first) / width);
    const bar = bars[index] ?? NONE;
    bars[index] = { all: bar.all + count.all, serious: bar.serious + count.serious, errors: bar.errors + count.errors };
  }
  return {
    first: seconds(first),
    last: seconds(last + 1),
    bars,
    most: Math.max(1, ...bars.map((bar) => bar.all)),
    serious: bars.reduce((sum, bar) => sum + bar.serious, 0),
  };
}
