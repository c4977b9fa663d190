/** Entries of the audit in words. Pure. */

const ACTIONS: Record<string, string> = {
  create: "Created a job",
  retry: "Retried a job",
  clone: "Cloned a job",
  change: "Changed a job",
  cancel: "Stopped a job",
  suspend: "Suspended a job",
  resume: "Resumed a job",
  scale: "Scaled a job",
  delete: "Deleted a job",
  forget: "Erased history",
  logs: "Read logs",
  fetch: "Downloaded files",
  exec: "Ran a command in a worker",
  stacks: "Captured stacks",
  end: "Job ended",
  prune: "Removed old records",
  set: "Changed a setting",
  reconcile: "Started the next attempt",
  register: "Registered a model",
  store: "Stored files",
  restore: "Restored a backup",
  install: "Installed the platform",
};

export const actionWords = (verb: string): string => ACTIONS[verb] ?? verb;

/** The result of an action: its HTTP status in a word. */
export function resultOf(code: number | undefined): { text: string; isGood: boolean } {
  if (!code) return { text: "Unknown", isGood: true };
  if (code < 400) return { text: "Success", isGood: true };
  if (code === 401 || code === 403) return { text: "Denied", isGood: false };
  return { text: `Failed (${code})`, isGood: false };
}

/** A time stamp such as `2026-11-17T18:13:31.042123Z` in seconds. */
export const timeOf = (stamp: string): number => Date.parse(stamp) / 1000;
