/** The questions that several screens ask, and how often they are asked again. */
import { QueryCache, QueryClient, useQuery } from "@tanstack/react-query";
import { isFinal } from "../lib/phases";
import { api, ApiError, isUnauthorized, attemptParams, jobKey, jobParams, unwrap, type JobRow } from "./client";
import { refetchedOn } from "./refetch";

export function createQueryClient(): QueryClient {
  const queries: QueryClient = new QueryClient({
    queryCache: new QueryCache({
      onError: (error, query) => {
        if (isUnauthorized(error) && query.queryKey[0] !== "session") void queries.invalidateQueries({ queryKey: ["session"] });
      },
    }),
    defaultOptions: {
      mutations: { networkMode: "always" }, // the server may be on this machine: a browser without a network still reaches it
      queries: {
        networkMode: "always",
        staleTime: 1000,
        retry: (count, error) => !(error instanceof ApiError && error.status >= 400 && error.status < 500) && count < 2,
      },
    },
  });
  return queries;
}

/** What this place is and can do; it does not change while the page is open. */
export const useCapabilities = () =>
  useQuery({ queryKey: ["capabilities"], queryFn: () => unwrap(api.GET("/api/v1/capabilities")), staleTime: Infinity });

const ACTIVE_MS = 3000;
const ENDED_MS = 15000;

/** One job; with a uid exactly that one, although a later job may have its name; with an attempt as that one ended. */
export const useJob = (namespace: string, name: string, uid = "", attempt = 0, enabled = true) =>
  useQuery({
    queryKey: uid || attempt ? ["job", namespace, name, "uid", uid, attempt] : ["job", namespace, name],
    queryFn: () => {
      const query = { ...(uid ? { uid } : {}), ...(attempt ? { attempt } : {}) };
      return unwrap(api.GET("/api/v1/trainjobs/{namespace}/{name}", { params: { path: { namespace, name }, query } }));
    },
    refetchInterval: (query) => (query.state.data && isFinal(query.state.data.row.phase) ? ENDED_MS : ACTIVE_MS),
    enabled,
  });

/** The jobs that have had this name, newest first, with their attempts: a job that was retried by hand is a new run. */
export const useRuns = (row: JobRow) =>
  useQuery({
    ...refetchedOn(["job", row.namespace, row.name, "runs"], row.phase),
    queryFn: () =>
      unwrap(api.GET("/api/v1/trainjobs/{namespace}/{name}/runs", { params: { path: { namespace: row.namespace, name: row.name } } })),
    retry: false,
  });

/** What a job used and cost, and what earlier runs of its program lead to expect. */
export const useAccount = (row: JobRow) =>
  useQuery({
    ...refetchedOn(["job", row.namespace, row.name, "account", row.uid], row.phase),
    queryFn: () => unwrap(api.GET("/api/v1/trainjobs/{namespace}/{name}/account", { params: jobParams(row) })),
    refetchInterval: isFinal(row.phase) ? false : ENDED_MS,
    retry: false,
  });

/** A training's own metrics. */
export const useCurves = (row: JobRow, points = 720) =>
  useQuery({
    ...refetchedOn([...jobKey(row, "curves"), points], row.phase),
    queryFn: () => {
      const { path, query } = attemptParams(row);
      return unwrap(api.GET("/api/v1/trainjobs/{namespace}/{name}/curves", { params: { path, query: { ...query, points } } }));
    },
    enabled: row.started !== null,
    refetchInterval: row.phase === "Running" ? 5000 : false,
    retry: false,
  });

/** The scalars in the event files that a job wrote; an engine whose files are elsewhere has none. */
export const useScalars = (row: JobRow) =>
  useQuery({
    ...refetchedOn(jobKey(row, "scalars"), row.phase),
    queryFn: () => unwrap(api.GET("/api/v1/trainjobs/{namespace}/{name}/scalars", { params: attemptParams(row) })),
    enabled: row.started !== null,
    refetchInterval: (query) => (row.phase === "Running" && query.state.data ? ENDED_MS : false),
    retry: false,
  });

/** In which zone and rack the job's nodes stand; asked again only when it has other nodes. */
export const useNodePlaces = (row: JobRow, nodes: readonly string[]) =>
  useQuery({
    ...refetchedOn(jobKey(row, "nodes"), nodes.join()),
    queryFn: () => unwrap(api.GET("/api/v1/trainjobs/{namespace}/{name}/nodes", { params: jobParams(row) })),
    enabled: nodes.length > 0,
    staleTime: Infinity,
    retry: false,
  });

export const useEvents = (row: JobRow) =>
  useQuery({
    queryKey: jobKey(row, "events"),
    queryFn: () => unwrap(api.GET("/api/v1/trainjobs/{namespace}/{name}/events", { params: attemptParams(row) })),
    refetchInterval: isFinal(row.phase) ? ENDED_MS : 5000,
  });

export const useDiagnosis = (row: JobRow, enabled: boolean) =>
  useQuery({
    queryKey: [...jobKey(row, "why"), row.phase, row.attempt],
    queryFn: () => unwrap(api.GET("/api/v1/trainjobs/{namespace}/{name}/why", { params: attemptParams(row) })),
    enabled,
    refetchInterval: isFinal(row.phase) ? false : ENDED_MS,
  });

/** The templates of the library, of a namespace ("" is the user's own) and of the user. */
export const useTemplates = (namespace = "") =>
  useQuery({
    queryKey: ["templates", namespace],
    queryFn: () => unwrap(api.GET("/api/v1/templates", { params: { query: namespace ? { namespace } : {} } })),
    retry: false,
  });

export const useGuide = () => useQuery({ queryKey: ["guide"], queryFn: () => unwrap(api.GET("/api/v1/guide")), staleTime: Infinity });

/** What every field of a job is for. */
export const useFieldHelp = () => useQuery({ queryKey: ["fields"], queryFn: () => unwrap(api.GET("/api/v1/fields")), staleTime: Infinity });

/** Projects, images, queues and volumes that a form can offer in a namespace. */
export const useChoices = (namespace = "", enabled = true) =>
  useQuery({
    queryKey: ["choices", namespace],
    queryFn: () => unwrap(api.GET("/api/v1/choices", { params: { query: namespace ? { namespace } : {} } })),
    retry: false,
    staleTime: 30000,
    enabled,
  });
