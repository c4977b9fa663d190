/** The filters of the list, kept in the address: a view can be sent to somebody else. */
import { useMemo } from "react";
import { useSearchParams } from "react-router-dom";
import type { ListQuery, Phase } from "../api/client";

export interface Filters {
  readonly text: string;
  readonly status: readonly Phase[];
  readonly namespace: string;
  readonly owner: string;
  readonly type: string;
  readonly days: string;
  readonly sort: NonNullable<ListQuery["sort"]>;
  readonly after: string;
  readonly page: number;
  readonly limit: number;
  readonly active: boolean;
}

const DAY = 86400;

export function useFilters() {
  const [params, setParams] = useSearchParams();
  const filters = useMemo<Filters>(() => {
    const text = params.get("text") ?? "";
    const status = params.getAll("status") as Phase[];
    const namespace = params.get("namespace") ?? "";
    const days = params.get("days") ?? "";
    const owner = params.get("owner") ?? "";
    const type = params.get("type") ?? "";
    return {
      text,
      status,
      namespace,
      owner,
      type,
      days,
      sort: (params.get("sort") as Filters["sort"] | null) ?? "-created",
      after: params.get("after") ?? "",
      page: Number(params.get("page") ?? 1) || 1,
      limit: Number(params.get("limit") ?? 50) || 50,
      active: Boolean(text || status.length || namespace || days || owner || type),
    };
  }, [params]);

  const query = useMemo<ListQuery>(() => {
    const { text, status, namespace, owner, type, days, sort, after, limit } = filters;
    const minute = Math.floor(Date.now() / 60000) * 60;
    return {
      sort,
      limit,
      ...(text ? { text } : {}),
      ...(status.length ? { status: [...status] } : {}),
      ...(namespace ? { namespace } : {}),
      ...(owner ? { owner } : {}),
      ...(type ? { type: [type] } : {}),
      ...(days ? { since: minute - Number(days) * DAY } : {}),
      ...(after ? { after } : {}),
    };
  }, [filters]);

  /** Change some filters; another question begins at its first page. */
  const set = (change: Partial<Omit<Filters, "active">>): void => {
    setParams((was) => {
      const next = new URLSearchParams(was);
      if (!("after" in change)) {
        next.delete("after");
        next.delete("page");
      }
      for (const [key, value] of Object.entries(change)) {
        next.delete(key);
        for (const one of Array.isArray(value) ? value : [value]) if (one) next.append(key, String(one));
      }
      return next;
    }, { replace: !("after" in change) });
  };
  return { filters, query, set, reset: () => setParams({}) };
}
