/** Signing in: the one-time token of the address is changed for a cookie, and leaves the address at once. */
import { useQuery } from "@tanstack/react-query";
import { api, setCsrf, take } from "./client";

const MARK = "#token=";

async function session() {
  const { hash, pathname, search } = window.location;
  if (hash.startsWith(MARK)) {
    window.history.replaceState(null, "", pathname + search);
    const entered = await take(api.POST("/api/v1/session", { body: { token: hash.slice(MARK.length) } }));
    setCsrf(entered.csrf);
    return entered;
  }
  const known = await take(api.GET("/api/v1/session"));
  setCsrf(known.csrf);
  return known;
}

let first: ReturnType<typeof session> | null = null;

/** The token works once: whoever asks at the same time shares the answer. */
const shared = (): ReturnType<typeof session> => {
  first ??= session().finally(() => {
    first = null;
  });
  return first;
};

export const useSession = () =>
  useQuery({ queryKey: ["session"], queryFn: shared, staleTime: Infinity, retry: false, refetchOnWindowFocus: true });
