/** What the series of a training are drawn over. Pure. */
import type { Series } from "../api/client";

export interface Axis {
  readonly name: "step" | "epoch" | "time";
  readonly xs: readonly number[];
}

const isRising = (values: readonly (number | null)[]): values is readonly number[] =>
  values.every((value, index) => value !== null && (index === 0 || value > (values[index - 1] ?? Infinity)));

/** Steps where all are there and none goes back, else the time. */
export function axisOf(series: Series, hasSteps: boolean): Axis {
  if (isRising(series.steps)) return { name: hasSteps ? "step" : "epoch", xs: series.steps };
  return { name: "time", xs: series.times };
}

/** The order in which metrics matter: loss and accuracy first, what is set rather than reached last. */
const FIRST = ["loss", "train_loss", "val_loss", "accuracy", "acc", "val_accuracy"];
const LAST = ["lr", "learning_rate", "grad_norm"];

const weight = (name: string): number => {
  const first = FIRST.indexOf(name);
  return first >= 0 ? first : LAST.includes(name) ? 1000 : 100;
};

export const byImportance = (all: readonly Series[]): readonly Series[] => [...all].sort((one, other) => weight(one.name) - weight(other.name) || one.name.localeCompare(other.name));

/** Whether a series can be drawn: a single value is a number to show. */
export const isCurve = (series: Series): boolean => series.values.filter((value) => value !== null).length > 1;

/** Whether a series never changes: its value says all. */
export const isConstant = ({ least, most }: Series): boolean => least !== null && least === most;

/** Whether a metric is set and not reached: none of its values is better than another. */
export const isSetting = (name: string): boolean => LAST.includes(name) && name !== "grad_norm";

/** Whether less is better: what a comparison marks as the best. */
export const isBetterLow = (name: string): boolean => /loss|error|perplexity|ppl|seconds|time/i.test(name);
