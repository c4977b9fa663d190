/** Times and amounts as people read them; the same forms as the command line's. */

export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined) return "–";
  const all = Math.max(0, seconds);
  if (all < 9.95) return `${all.toFixed(1)}s`;
  const whole = Math.round(all);
  const two = (n: number) => String(n).padStart(2, "0");
  if (whole < 60) return `${whole}s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m${two(whole % 60)}s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)}h${two(Math.floor((whole % 3600) / 60))}m`;
  return `${Math.floor(whole / 86400)}d${two(Math.floor((whole % 86400) / 3600))}h`;
}

export function ago(moment: number | null | undefined, now: number): string {
  if (!moment) return "–";
  const seconds = Math.max(0, Math.floor(now - moment));
  if (seconds < 5) return "just now";
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["m", 60]] as const)
    if (seconds >= 2 * size || (seconds >= size && unit === "m")) return `${Math.floor(seconds / size)}${unit} ago`;
  return `${seconds}s ago`;
}

export const clock = (milliseconds: number): string => new Date(milliseconds).toISOString().slice(11, 23);
export const moment = (seconds: number): string => new Date(seconds * 1000).toLocaleString();

export function bytes(amount: number | null | undefined): string {
  if (amount === null || amount === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = amount;
  let at = 0;
  while (value >= 1024 && at < units.length - 1) {
    value /= 1024;
    at += 1;
  }
  return `${Number(value.toFixed(value < 10 ? 1 : 0))} ${units[at]}`;
}

export const plural = (count: number, noun: string, nouns = `${noun}s`): string => `${count} ${count === 1 ? noun : nouns}`;

/** Where a job's lines of a time are shown; both in seconds, `until` null for all since then. */
export function linesBetween(job: { namespace: string; name: string }, since: number, until: number | null): string {
  const end = until === null ? "" : `&until=${Math.ceil(until)}`;
  return `/jobs/${job.namespace}/${job.name}/logs?since=${Math.floor(since)}${end}`;
}

/** The phases after which nothing more happens. */
export const FINAL: readonly string[] = ["Succeeded", "Failed", "Cancelled"];
