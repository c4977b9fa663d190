/** Addresses within the page. Pure. */

interface Named {
  readonly namespace: string;
  readonly name: string;
}

export const JOB_TABS = ["overview", "logs", "metrics", "workers", "events", "files", "configuration"] as const;
export type JobTab = (typeof JOB_TABS)[number];

/** The page of a job, with one of its tabs and a query. */
export function jobPath(job: Named, tab: JobTab = "overview", query: Record<string, string | number | undefined> = {}): string {
  const words = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) if (value !== undefined && value !== "") words.set(key, String(value));
  const search = words.toString();
  return `/jobs/${job.namespace}/${job.name}${tab === "overview" ? "" : `/${tab}`}${search ? `?${search}` : ""}`;
}

/** The log lines of a time; both in seconds, `until` null for all since then. */
export const logsBetween = (job: Named, since: number, until: number | null, more: Record<string, string> = {}): string =>
  jobPath(job, "logs", { since: Math.floor(since), until: until === null ? undefined : Math.ceil(until), ...more });

/** The log lines around a moment. */
export const logsAround = (job: Named, moment: number, more: Record<string, string> = {}): string => logsBetween(job, moment - 30, moment + 30, more);

export const clonePath = (job: Named, fix?: number): string =>
  `/create?from=${encodeURIComponent(`${job.namespace}/${job.name}`)}${fix === undefined ? "" : `&fix=${fix}&step=review`}`;

export const comparePath = (jobs: readonly string[]): string => `/compare?${jobs.map((job) => `job=${encodeURIComponent(job)}`).join("&")}`;
