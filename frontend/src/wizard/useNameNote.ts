import { useQuery } from "@tanstack/react-query";
import { api, unwrap } from "../api/client";
import { useDebounced } from "../lib/hooks";

const VALID = /^[a-z0-9](?:[a-z0-9-]*[a-z0-9])?$/;

/** Whether a name is free, said below its field while it is typed; "" where nothing is to be said. */
export function useNameNote(name: string, namespace: string): string {
  const settled = useDebounced(name, 400);
  const isValid = VALID.test(settled);
  const jobs = useQuery({
    queryKey: ["jobs", "name", namespace, settled],
    queryFn: () => unwrap(api.GET("/api/v1/trainjobs", { params: { query: { text: settled, limit: 100, ...(namespace ? { namespace } : {}) } } })),
    enabled: isValid,
    retry: false,
  });
  if (!isValid || settled !== name || !jobs.data) return "";
  const taken = jobs.data.items.find((row) => row.name === settled);
  return taken ? `A job of this name exists (${taken.phase}). Choose another name.` : "This name is available.";
}
