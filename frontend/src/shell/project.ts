/** The project that lists show: part of the address, so that a link shows the same to others, and kept for the next visit. */
import { useCallback, useMemo } from "react";
import { useQuery } from "@tanstack/react-query";
import { api, unwrap } from "../api/client";
import { useCapabilities, useChoices } from "../api/queries";
import { useQueryParams } from "../lib/hooks";
import { preferences, setPreferences } from "./preferences";

export const ALL_PROJECTS = "all";

/** The chosen project, "" for all, and how to choose another. */
export function useProject(): readonly [string, (project: string) => void] {
  const [params, edit] = useQueryParams();
  const named = params.get("namespace");
  const project = named === ALL_PROJECTS ? "" : (named ?? preferences().project);
  const choose = useCallback(
    (next: string): void => {
      setPreferences({ project: next });
      edit((query) => {
        query.set("namespace", next || ALL_PROJECTS);
        for (const key of ["after", "page"]) query.delete(key);
      });
    },
    [edit],
  );
  return [project, choose];
}

/** The projects in which there are jobs, by the names that people gave them. */
export function useProjects(): readonly { name: string; label: string }[] {
  const place = useCapabilities();
  const jobs = useQuery({
    queryKey: ["jobs", "projects"],
    queryFn: () => unwrap(api.GET("/api/v1/trainjobs", { params: { query: { limit: 1 } } })),
    staleTime: 60_000,
    retry: false,
  });
  const names = jobs.data?.namespaces;
  const choices = useChoices("", Boolean(place.data?.cluster && (names?.length ?? 0) > 1));
  return useMemo(() => {
    const titles = new Map((choices.data?.projects ?? []).map((project) => [project.name, project.text]));
    return (names ?? []).map((name) => ({ name, label: titles.get(name) ? `${titles.get(name)} (${name})` : name }));
  }, [names, choices.data]);
}
