/** What the user is notified of: jobs that succeeded, failed or stopped responding. Pure. */
import type { JobRow } from "../api/client";
import { isFinal, isNotResponding } from "../lib/phases";

export interface Notice {
  readonly id: string;
  readonly kind: "succeeded" | "failed" | "stuck";
  readonly namespace: string;
  readonly name: string;
  readonly time: number;
  readonly text: string;
  readonly read: boolean;
}

export const TITLES: Record<Notice["kind"], (name: string) => string> = {
  succeeded: (name) => `${name} succeeded`,
  failed: (name) => `${name} failed`,
  stuck: (name) => `${name} is not responding`,
};

export const MOST_NOTICES = 50;

function kindOf(before: JobRow | undefined, row: JobRow, watchingSince: number): Notice["kind"] | null {
  if (isNotResponding(row)) return before && isNotResponding(before) ? null : "stuck";
  const kind = row.phase === "Succeeded" ? "succeeded" : row.phase === "Failed" ? "failed" : null; // a user knows what they cancelled
  const news = before ? !isFinal(before.phase) || before.attempt !== row.attempt : (row.finished ?? 0) >= watchingSince;
  return news ? kind : null;
}

/** Return the notice for a job that changed; null where there is nothing to tell. */
export function noticeOf(before: JobRow | undefined, row: JobRow, watchingSince: number): Notice | null {
  const kind = kindOf(before, row, watchingSince);
  if (!kind) return null;
  return {
    id: `${row.namespace}/${row.uid}/${row.attempt}/${kind}`,
    kind,
    namespace: row.namespace,
    name: row.name,
    time: row.finished ?? Date.now() / 1000,
    text: kind === "succeeded" ? "" : row.why,
    read: false,
  };
}

/** Add notices, the newest first; one that is there already is not told again. */
export function withNotices(known: readonly Notice[], added: readonly Notice[]): readonly Notice[] {
  const ids = new Set(known.map((notice) => notice.id));
  return [...added.filter((notice) => !ids.has(notice.id)), ...known].slice(0, MOST_NOTICES);
}
