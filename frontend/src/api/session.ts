/** Signing in: the one-time token of the address is changed for a cookie, and leaves the address at once. */
import { useQuery } from "@tanstack/react-query";
import { api, setCsrfToken, unwrap } from "./client";

const TOKEN_MARK = "#token=";

async function readSession() {
  const { hash, pathname, search } = window.location;
  if (hash.startsWith(TOKEN_MARK)) {
    window.history.replaceState(null, "", pathname + search);
    const session = await unwrap(api.POST("/api/v1/session", { body: { token: hash.slice(TOKEN_MARK.length) } }));
    setCsrfToken(session.csrf);
    return session;
  }
  const session = await unwrap(api.GET("/api/v1/session"));
  setCsrfToken(session.csrf);
  return session;
}

let pending: ReturnType<typeof readSession> | null = null;

/** The token works once: callers at the same time share the answer. */
const shared = (): ReturnType<typeof readSession> => {
  pending ??= readSession().finally(() => {
    pending = null;
  });
  return pending;
};

export const useSession = () =>
  useQuery({ queryKey: ["session"], queryFn: shared, staleTime: Infinity, retry: false, refetchOnWindowFocus: true });
