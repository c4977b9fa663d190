/** How the page asks the server: again when it seems worth it, and who is signed out is told. */
import { QueryCache, QueryClient, useQuery } from "@tanstack/react-query";
import { api, ApiProblem, take } from "./api/client";

export function makeQueries(): QueryClient {
  const queries: QueryClient = new QueryClient({
    queryCache: new QueryCache({
      onError: (error, query) => {
        if (error instanceof ApiProblem && error.status === 401 && query.queryKey[0] !== "session")
          void queries.invalidateQueries({ queryKey: ["session"] });
      },
    }),
    defaultOptions: {
      mutations: { networkMode: "always" }, // the server may be on this machine: a browser without a network still reaches it
      queries: {
        networkMode: "always",
        staleTime: 1000,
        refetchInterval: (query) => (query.queryKey[0] === "jobs" ? 5000 : false),
        retry: (count, error) => !(error instanceof ApiProblem && error.status >= 400 && error.status < 500) && count < 2,
      },
    },
  });
  return queries;
}

/** Where we are and what is possible here; it does not change while the page is open. */
export const usePlace = () => useQuery({ queryKey: ["place"], queryFn: () => take(api.GET("/api/v1/capabilities")), staleTime: Infinity });
