/** What the summary may offer: never more than was asked for, and nothing that the job has already. Pure. */
import type { Fit, SizingReport } from "../api/client";
import { isObject, read, write, type Values } from "./document";

/** Fewer workers that would start now; null where that would change nothing: jobs ahead in the queue go first. */
export function workersThatStartNow(fit: Fit, workers: number): number | null {
  const count = fit.starts_now ?? null;
  if (count === null || count < 1 || count >= workers || fit.verdict === "fits now" || fit.ahead_jobs) return null;
  return count;
}

/** Changes that earlier runs speak for and the job does not have yet. */
export const usefulAdvice = (sizing: SizingReport) => (sizing.advice ?? []).filter((one) => one.value !== one.now);

/** Return the text of a job with another number of workers; where all are in groups, the last group gets larger or smaller. */
export function withWorkers(text: string, job: Values, count: number): string {
  const resized = write(text, "workers", count);
  const groups = Array.isArray(job["groups"]) ? job["groups"].filter(isObject) : [];
  const [last, inGroups] = [groups.at(-1), groups.reduce((sum, group) => sum + Number(group["workers"] ?? 0), 0)];
  if (!last || inGroups < Number(read(job, "workers") ?? 4)) return resized;
  return write(resized, "groups", [...groups.slice(0, -1), { ...last, workers: Number(last["workers"]) - inGroups + count }]);
}
