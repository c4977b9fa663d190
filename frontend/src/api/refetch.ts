import type { QueryKey } from "@tanstack/react-query";

/** Asks again when `change` does, mostly the phase, and keeps the last answer until the next is there: no screen is emptied, no menu closed. */
export const refetchedOn = (key: QueryKey, change: string) => ({
  queryKey: [...key, change],
  placeholderData: <T>(before: T | undefined, query: { queryKey: QueryKey } | undefined): T | undefined =>
    JSON.stringify(query?.queryKey.slice(0, -1)) === JSON.stringify(key) ? before : undefined,
});
