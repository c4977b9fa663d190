/** The filters of the list, kept in the address: a view can be sent to somebody else. */
import { useMemo } from "react";
import { useLocation, useNavigate } from "react-router-dom";
import { useAsked } from "../hooks";
import type { ListQuery, Phase } from "../api/client";

export interface Filters {
  readonly text: string;
  readonly status: readonly Phase[];
  readonly namespace: string;
  readonly owner: string;
  readonly type: string;
  readonly days: string;
  readonly from: string;
  readonly to: string;
  readonly queue: string;
  readonly sort: NonNullable<ListQuery["sort"]>;
  readonly after: string;
  readonly page: number;
  readonly limit: number;
  readonly active: boolean;
}

const DAY = 86400;
const seconds = (day: string): number => new Date(`${day}T00:00:00`).getTime() / 1000;

export function useFilters() {
  const navigate = useNavigate();
  const turned = (useLocation().state as { turned?: boolean } | null)?.turned;
  const [params, ask] = useAsked();
  const filters = useMemo<Filters>(() => {
    const text = params.get("text") ?? "";
    const status = params.getAll("status") as Phase[];
    const namespace = params.get("namespace") ?? "";
    const days = params.get("days") ?? "";
    const owner = params.get("owner") ?? "";
    const type = params.get("type") ?? "";
    const [from, to, queue] = ["from", "to", "queue"].map((key) => params.get(key) ?? "") as [string, string, string];
    return {
      text,
      status,
      namespace,
      owner,
      type,
      days,
      from,
      to,
      queue,
      sort: (params.get("sort") as Filters["sort"] | null) ?? "-created",
      after: params.get("after") ?? "",
      page: Number(params.get("page") ?? 1) || 1,
      limit: Number(params.get("limit") ?? 50) || 50,
      active: Boolean(text || status.length || namespace || days || owner || type || queue),
    };
  }, [params]);

  const query = useMemo<ListQuery>(() => {
    const { text, status, namespace, owner, type, days, from, to, queue, sort, after, limit } = filters;
    const minute = Math.floor(Date.now() / 60000) * 60;
    return {
      sort,
      limit,
      ...(text ? { text } : {}),
      ...(status.length ? { status: [...status] } : {}),
      ...(namespace ? { namespace } : {}),
      ...(owner ? { owner } : {}),
      ...(type ? { type: [type] } : {}),
      ...(queue ? { queue } : {}),
      ...(Number(days) ? { since: minute - Number(days) * DAY } : {}),
      ...(days === "own" && from ? { since: seconds(from) } : {}),
      ...(days === "own" && to ? { until: seconds(to) + DAY } : {}),
      ...(after ? { after } : {}),
    };
  }, [filters]);

  /** Change some filters; another question begins at its first page. */
  const set = (change: Partial<Omit<Filters, "active">>): void => {
    ask((next) => {
      if (!("after" in change)) {
        next.delete("after");
        next.delete("page");
      }
      for (const [key, value] of Object.entries(change)) {
        next.delete(key);
        for (const one of Array.isArray(value) ? value : [value]) if (one) next.append(key, String(one));
      }
    }, "after" in change ? { state: { turned: true } } : { replace: true });
  };
  /** The page before this one; whoever came by a link to a later page goes to the first. */
  const back = (): void => {
    if (turned) navigate(-1);
    else set({ limit: filters.limit });
  };
  return { filters, query, set, back, reset: () => ask((next) => [...next.keys()].forEach((key) => next.delete(key))) };
}
