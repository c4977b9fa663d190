import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { api, unwrap, type JobProgress, type JobRow } from "../api/client";

const AGAIN_MS = 15_000;
const TOLD: readonly JobRow["phase"][] = ["Running", "Failed", "Suspended"];
const NONE: ReadonlyMap<string, JobProgress> = new Map();

/** How far the jobs of a list are, by `namespace/name`. */
export function useProgress(rows: readonly JobRow[], enabled: boolean): ReadonlyMap<string, JobProgress> {
  const jobs = rows.filter((row) => row.started !== null && TOLD.includes(row.phase)).map((row) => `${row.namespace}/${row.name}`);
  const found = useQuery({
    queryKey: ["progress", jobs],
    queryFn: () => unwrap(api.GET("/api/v1/progress", { params: { query: { job: jobs } } })),
    enabled: enabled && jobs.length > 0,
    refetchInterval: rows.some((row) => row.phase === "Running") ? AGAIN_MS : false,
    placeholderData: keepPreviousData,
    retry: false,
  });
  const items = found.data?.items;
  // not in `select`: of earlier data it would return a new map with each render, and so ask for another one
  return useMemo(() => (items ? new Map(items.map((item) => [item.job, item])) : NONE), [items]);
}
