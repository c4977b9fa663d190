/** The scalars of event files as charts: one for each tag, a line for each run. Pure. */
import type { ScalarSeries } from "../api/client";
import type { ChartSeries } from "./Chart";

export const MOST_LINES = 16;
const COLORS = [0, 2, 4, 3, 5, 1, 6, 7]; // blue and teal are not side by side: most charts have two lines

export interface TagChart {
  readonly tag: string;
  readonly runs: readonly ScalarSeries[];
  readonly xName: "step" | "time";
  readonly xs: readonly number[];
  readonly lines: readonly ChartSeries[];
}

/** The charts of the series whose tag or run has the words in it, in the order of their tags. */
export function tagCharts(all: readonly ScalarSeries[], words = ""): readonly TagChart[] {
  const wanted = words.trim().toLowerCase();
  const tags = new Map<string, ScalarSeries[]>();
  for (const one of all) {
    if (`${one.tag} ${one.run}`.toLowerCase().includes(wanted)) tags.set(one.tag, [...(tags.get(one.tag) ?? []), one]);
  }
  return [...tags].map(([tag, runs]) => chart(tag, runs));
}

function chart(tag: string, runs: readonly ScalarSeries[]): TagChart {
  const drawn = runs.slice(0, MOST_LINES);
  const bySteps = drawn.every(({ steps }) => isRising(steps));
  const xsOf = (one: ScalarSeries): readonly number[] => (bySteps ? one.steps : one.times);
  const xs = [...new Set(drawn.flatMap(xsOf))].sort((one, other) => one - other);
  const places = new Map(xs.map((x, index) => [x, index]));
  const lines = drawn.map((one, at) => {
    const values: (number | null)[] = xs.map(() => null);
    xsOf(one).forEach((x, index) => (values[places.get(x) ?? 0] = one.values[index] ?? null));
    return { label: runName(one.run), values, color: COLORS[at % COLORS.length] ?? 0 };
  });
  return { tag, runs, xName: bySteps ? "step" : "time", xs, lines };
}

const isRising = (steps: readonly number[]): boolean => steps.every((step, index) => index === 0 || step > (steps[index - 1] ?? Infinity));

/** A run as it is called: files beside the program have no directory of their own. */
export const runName = (run: string): string => (run === "." ? "working directory" : run.replace(/^\. /, "working directory "));

/** Whether there is a line to draw: a single value is a number to show. */
export const hasLine = ({ lines }: TagChart): boolean => lines.some(({ values }) => values.filter((value) => value !== null).length > 1);
