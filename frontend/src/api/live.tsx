/** The one stream of changes of this tab: it patches what the page has, calls listeners, and says how fresh all is. */
import { useQueryClient } from "@tanstack/react-query";
import { createContext, useContext, useEffect, useState, type ReactNode } from "react";
import { serverUrl } from "./base";
import { rowKey, type Delta, type JobList, type JobRow, type Problem } from "./client";

export interface Connection {
  readonly connected: boolean;
  /** When the server was last heard, in seconds. */
  readonly seen: number;
  /** Why nothing new comes, where the server says so. */
  readonly trouble: Problem | null;
}

const ConnectionContext = createContext<Connection>({ connected: false, seen: 0, trouble: null });
export const useConnection = (): Connection => useContext(ConnectionContext);

const RECONNECT_MS = 2000;
const SILENT_SECONDS = 15;
const REFETCH_MS = 1000; // counts and totals; the rows themselves come with the change

type Listener = (rows: readonly JobRow[]) => void;
const listeners = new Set<Listener>();

/** Call a function with the rows that changed; returns how to stop. */
export const onJobChanges = (listener: Listener): (() => void) => {
  listeners.add(listener);
  return () => listeners.delete(listener);
};

const parse = (event: Event): Delta => JSON.parse((event as MessageEvent<string>).data) as Delta;

export function LiveProvider({ children }: { children: ReactNode }) {
  const queries = useQueryClient();
  const [connection, setConnection] = useState<Connection>({ connected: false, seen: Date.now() / 1000, trouble: null });

  useEffect(() => {
    let source: EventSource | null = null;
    let reconnect = 0;
    let refetch = 0;
    let stopped = false;

    const heard = (delta: Delta): void => setConnection({ connected: true, seen: Date.now() / 1000, trouble: delta.trouble ?? null });

    const refetchLists = (): void => {
      refetch ||= window.setTimeout(() => {
        refetch = 0;
        void queries.invalidateQueries({ queryKey: ["jobs"] });
      }, REFETCH_MS);
    };

    const changed = (delta: Delta): void => {
      const rows = delta.upsert ?? [];
      listeners.forEach((listener) => listener(rows)); // they may compare with what the lists still show
      const fresh = new Map(rows.map((row) => [rowKey(row), row]));
      const gone = new Set(delta.delete ?? []);
      queries.setQueriesData<JobList>(
        { queryKey: ["jobs"] },
        (list) =>
          list && { ...list, items: list.items.filter((row) => !gone.has(rowKey(row))).map((row) => fresh.get(rowKey(row)) ?? row) },
      );
      for (const row of rows) void queries.invalidateQueries({ queryKey: ["job", row.namespace, row.name] });
      refetchLists();
      heard(delta);
    };

    const open = (): void => {
      source = new EventSource(serverUrl("/api/v1/stream"));
      source.addEventListener("beat", (event) => heard(parse(event)));
      source.addEventListener("change", (event) => changed(parse(event)));
      source.addEventListener("reset", (event) => {
        void queries.invalidateQueries();
        heard(parse(event));
      });
      source.addEventListener("bye", () => {
        void queries.invalidateQueries({ queryKey: ["session"] }); // the login ended: the sign-in page is shown
      });
      source.onerror = () => {
        setConnection((before) => ({ ...before, connected: false }));
        if (source?.readyState === EventSource.CLOSED && !stopped) {
          void queries.invalidateQueries({ queryKey: ["session"] });
          reconnect = window.setTimeout(open, RECONNECT_MS);
        }
      };
    };

    open();
    const watchdog = window.setInterval(() => {
      setConnection((now) => (now.connected && Date.now() / 1000 - now.seen > SILENT_SECONDS ? { ...now, connected: false } : now));
    }, 1000);
    return () => {
      stopped = true;
      window.clearInterval(watchdog);
      window.clearTimeout(reconnect);
      window.clearTimeout(refetch);
      source?.close();
    };
  }, [queries]);

  return <ConnectionContext.Provider value={connection}>{children}</ConnectionContext.Provider>;
}
