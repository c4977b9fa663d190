/** When a job that waits will start, in words. Pure. */
import { capitalized, range, roughly } from "./format";

export interface StartEstimate {
  readonly seconds: number | null | undefined;
  /** From when to when, in seconds from now. */
  readonly span?: readonly number[] | null | undefined;
  /** What the estimate rests on, or why there is none. */
  readonly basis?: string | undefined;
}

/** When it will start, with its range; without an estimate, why there is none. */
export function startText({ seconds, span, basis = "" }: StartEstimate): string {
  if (seconds === null || seconds === undefined) return basis ? `No estimate yet: ${basis}` : "No estimate yet";
  const [low = seconds, high = seconds] = span ?? [];
  return `in about ${roughly(seconds)}${high > low ? ` (${range(low, high)})` : ""}`;
}

/** What an estimate rests on, as a sentence; "" where there is no estimate. */
export const basisText = ({ seconds, basis = "" }: StartEstimate): string => (seconds === null || seconds === undefined ? "" : capitalized(basis));
