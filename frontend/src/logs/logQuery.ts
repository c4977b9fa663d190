/** The filters of a log as they stand in the address, and the question to the server that they mean. Pure. */
import type { LogRow } from "../api/client";
import { parseSpans } from "../lib/format";

export const FIRST_LINES = 500;
export const MORE_LINES = 10_000;
const AROUND_SECONDS = 60;

export interface LogFilters {
  readonly roles: readonly string[];
  readonly ranks: readonly number[];
  readonly workers: readonly number[];
  readonly level: string;
  readonly since: string;
  readonly until: string;
  readonly find: string;
  /** Whether only lines that hold what is looked for are shown. */
  readonly only: boolean;
  readonly fold: boolean;
}

export function readLogFilters(params: URLSearchParams): LogFilters {
  const word = (key: string): string => params.get(key) ?? "";
  return {
    roles: params.getAll("role"),
    ranks: parseSpans(word("ranks")),
    workers: parseSpans(word("workers")),
    level: word("level"),
    since: word("since"),
    until: word("until"),
    find: word("find") || word("regex"),
    only: word("only") === "true" || Boolean(word("regex")),
    fold: word("fold") === "true",
  };
}

interface Where {
  readonly uid: string;
  /** The attempt that is shown, 0 for all of them. */
  readonly attempt?: number;
  readonly isFinal: boolean;
  /** The line that a link leads to, in nanoseconds as text. */
  readonly line: string;
}

/** The question for the newest lines that the filters leave, and for those that follow. */
export function logQuery(filters: LogFilters, { uid, attempt, isFinal, line }: Where): string {
  const query = new URLSearchParams({ tail: String(FIRST_LINES), tidy: "true" });
  for (const role of filters.roles) query.append("roles", role);
  for (const rank of filters.ranks) query.append("ranks", String(rank));
  for (const worker of filters.workers) query.append("workers", String(worker));
  if (filters.level) query.set("level", filters.level);
  if (filters.fold) query.set("fold", "true");
  if (filters.only && filters.find) query.set("regex", regexOf(filters.find));
  const moment = Number(line) / 1e9;
  const since = filters.since || (moment ? String(moment - AROUND_SECONDS) : "");
  const until = filters.until || (moment ? String(moment + AROUND_SECONDS) : "");
  if (since) query.set("since", since);
  if (until) query.set("until", until);
  else if (!isFinal) query.set("follow", "true");
  if (uid && !uid.includes("/")) query.set("uid", uid);
  if (attempt) query.set("attempt", String(attempt));
  return query.toString();
}

/** The same for everything, as a file. */
export function downloadQuery(query: string): Record<string, string> {
  const params = new URLSearchParams(query);
  for (const key of ["follow", "tail", "uid", "attempt"]) params.delete(key);
  return { ...Object.fromEntries(params), format: "text" };
}

const slashed = (text: string): string | null => /^\/(.+)\/$/.exec(text)?.[1] ?? null;
const escaped = (text: string): string => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

/** What is looked for as a regular expression: words as they are, or `/a regular expression/`. */
export const regexOf = (find: string): string => slashed(find) ?? `(?i)${escaped(find)}`;

/** The same for the browser; null where there is nothing to find, or no regular expression. */
export function patternOf(find: string): RegExp | null {
  if (!find) return null;
  try {
    return new RegExp(slashed(find) ?? escaped(find), "gi");
  } catch {
    return null;
  }
}

/** The lines that hold what is looked for, by their index. */
export function hitsIn(lines: readonly LogRow[], find: string): readonly number[] {
  const pattern = patternOf(find);
  return pattern ? lines.flatMap((line, index) => (line.text.search(pattern) >= 0 ? [index] : [])) : [];
}

/** Where the hit that is shown stands among all hits, from 0; the first one after it where it is none any more. */
export function hitIndex(hits: readonly number[], lines: readonly LogRow[], shown: LogRow | null): number {
  if (!hits.length) return -1;
  if (!shown) return 0;
  const same = hits.findIndex((hit) => lines[hit] === shown);
  if (same >= 0) return same;
  const index = hits.findIndex((hit) => !isEarlier(lines[hit]?.at ?? "", shown.at));
  return index < 0 ? hits.length - 1 : index;
}

/** Of lines that were read again those that come before the first that is kept; a burst has many of the same nanosecond. */
export function linesBefore(found: readonly LogRow[], kept: readonly LogRow[]): LogRow[] {
  const first = kept[0]?.at ?? "";
  const same = found.filter((line) => line.at === first);
  const known = kept.filter((line) => line.at === first).length;
  return [...found.filter((line) => isEarlier(line.at, first)), ...same.slice(0, Math.max(0, same.length - known))];
}

/** What a link names a line by: its time, and its place among the lines of the same nanosecond. */
export function lineId(lines: readonly LogRow[], line: LogRow): string {
  const place = lines.filter((one) => one.at === line.at).indexOf(line);
  return place > 0 ? `${line.at}.${place}` : line.at;
}

/** Where the line stands that a link names; -1 where it is not there. */
export function lineIndex(lines: readonly LogRow[], id: string): number {
  const [at = "", place = "0"] = id.split(".");
  const first = lines.findIndex((line) => line.at === at);
  if (first < 0) return -1;
  const named = first + Number(place);
  return lines[named]?.at === at ? named : first;
}

/** Whether one moment is before another; nanoseconds are too large for numbers. */
export const isEarlier = (one: string, other: string): boolean => (one.length !== other.length ? one.length < other.length : one < other);

const SERIOUS = new Set<string | null | undefined>(["warning", "error", "fatal"]);
export const isSerious = (line: LogRow): boolean => SERIOUS.has(line.level);
