/** What the summary may offer: never more than was asked for, and nothing that the job has already. Pure. */
import type { Fit, SizingReport } from "../api/client";

/** Fewer workers that would start now; null where that would change nothing: jobs ahead in the queue go first. */
export function workersThatStartNow(fit: Fit, workers: number): number | null {
  const count = fit.starts_now ?? null;
  if (count === null || count < 1 || count >= workers || fit.verdict === "fits now" || fit.ahead_jobs) return null;
  return count;
}

/** Changes that earlier runs speak for and the job does not have yet. */
export const usefulAdvice = (sizing: SizingReport) => (sizing.advice ?? []).filter((one) => one.value !== one.now);
