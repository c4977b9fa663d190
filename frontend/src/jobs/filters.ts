/** The filters of the list as they stand in the address: a view can be sent to somebody else. Pure. */
import type { ListQuery, Phase } from "../api/client";
import { dayRange, type Zone } from "../lib/time";

export interface Filters {
  readonly text: string;
  readonly status: readonly Phase[];
  readonly type: readonly string[];
  readonly owner: readonly string[];
  readonly queue: string;
  /** Days back from now, or `custom` for the days from `from` to `to`. */
  readonly days: string;
  readonly from: string;
  readonly to: string;
  readonly sort: NonNullable<ListQuery["sort"]>;
  readonly after: string;
  readonly page: number;
  readonly limit: number;
}

/** The filters that the user can clear; project, order and page are none. */
const CLEARABLE = ["text", "status", "type", "owner", "queue", "days", "from", "to"] as const;

export const DEFAULT_SORT = "-created";
export const PAGE_SIZES = [20, 50, 100];
const DAY_SECONDS = 86400;

export function readFilters(params: URLSearchParams): Filters {
  const word = (key: string): string => params.get(key) ?? "";
  return {
    text: word("text"),
    status: params.getAll("status") as Phase[],
    type: params.getAll("type"),
    owner: params.getAll("owner"),
    queue: word("queue"),
    days: word("days"),
    from: word("from"),
    to: word("to"),
    sort: (params.get("sort") as Filters["sort"] | null) ?? DEFAULT_SORT,
    after: word("after"),
    page: Number(params.get("page")) || 1,
    limit: Number(params.get("limit")) || 50,
  };
}

export const isFiltered = (params: URLSearchParams): boolean => CLEARABLE.some((key) => params.get(key));

/** What the filters ask the server; `now` in seconds. */
export function listQuery(filters: Filters, project: string, zone: Zone, now: number): ListQuery {
  const { text, status, type, owner, queue, days, from, to, sort, after, limit } = filters;
  const minute = Math.floor(now / 60) * 60; // the same question within a minute, so that its answer can be reused
  return {
    sort,
    limit,
    ...(project ? { namespace: project } : {}),
    ...(text ? { text } : {}),
    ...(status.length ? { status: [...status] } : {}),
    ...(type.length ? { type: [...type] } : {}),
    ...(owner.length ? { owner: [...owner] } : {}),
    ...(queue ? { queue } : {}),
    ...(Number(days) ? { since: minute - Number(days) * DAY_SECONDS } : {}),
    ...(days === "custom" && from ? { since: dayRange(from, zone)[0] } : {}),
    ...(days === "custom" && to ? { until: dayRange(to, zone)[1] } : {}),
    ...(after ? { after } : {}),
  };
}

export type FilterChange = { readonly [Key in keyof Filters]?: Filters[Key] };

/** Change filters in the address; another question begins at its first page. */
export function changeFilters(params: URLSearchParams, change: FilterChange): void {
  if (!("after" in change)) {
    params.delete("after");
    params.delete("page");
  }
  for (const [key, value] of Object.entries(change)) {
    params.delete(key);
    for (const one of Array.isArray(value) ? (value as readonly string[]) : [value]) if (one) params.append(key, String(one));
  }
}

export function clearFilters(params: URLSearchParams): void {
  for (const key of [...CLEARABLE, "after", "page"]) params.delete(key);
}

/** A value put into a list of values, or taken out. */
export const toggled = <T extends string>(values: readonly T[], value: T): readonly T[] =>
  values.includes(value) ? values.filter((one) => one !== value) : [...values, value];
