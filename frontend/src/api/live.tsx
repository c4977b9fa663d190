/** The one stream of changes of this tab: it patches what the page knows and says how fresh that is. */
import { useQueryClient } from "@tanstack/react-query";
import { createContext, useContext, useEffect, useMemo, useState, type ReactNode } from "react";
import { at } from "../where";
import { keyOf, type Delta, type JobList, type Problem } from "./client";

export interface Liveness {
  readonly connected: boolean;
  readonly seen: number;
  readonly trouble: Problem | null;
}

const Context = createContext<Liveness>({ connected: false, seen: 0, trouble: null });
export const useLive = (): Liveness => useContext(Context);
const AGAIN_MS = 2000;
const SILENT_SECONDS = 15;

export function Live({ children }: { children: ReactNode }) {
  const queries = useQueryClient();
  const [live, setLive] = useState<Liveness>({ connected: false, seen: Date.now() / 1000, trouble: null });

  useEffect(() => {
    let source: EventSource | null = null;
    let timer = 0;
    let stopped = false;

    const told = (delta: Delta): void =>
      setLive({ connected: true, seen: Date.now() / 1000, trouble: delta.trouble ?? null });

    const changed = (event: MessageEvent<string>): void => {
      const delta = JSON.parse(event.data) as Delta;
      const fresh = new Map((delta.upsert ?? []).map((row) => [keyOf(row), row]));
      const gone = new Set(delta.delete ?? []);
      queries.setQueriesData<JobList>({ queryKey: ["jobs"] }, (list) =>
        list && {
          ...list,
          items: list.items.filter((row) => !gone.has(keyOf(row))).map((row) => fresh.get(keyOf(row)) ?? row),
        },
      );
      for (const row of fresh.values()) void queries.invalidateQueries({ queryKey: ["job", row.namespace, row.name] });
      void queries.invalidateQueries({ queryKey: ["jobs"] });
      told(delta);
    };

    const open = (): void => {
      source = new EventSource(at("/api/v1/stream"));
      source.addEventListener("beat", (event) => told(JSON.parse((event as MessageEvent<string>).data) as Delta));
      source.addEventListener("change", (event) => changed(event as MessageEvent<string>));
      source.addEventListener("reset", (event) => {
        void queries.invalidateQueries();
        told(JSON.parse((event as MessageEvent<string>).data) as Delta);
      });
      source.addEventListener("bye", () => {
        void queries.invalidateQueries({ queryKey: ["session"] }); // the login ended: the way back in is shown
      });
      source.onerror = () => {
        setLive((was) => ({ ...was, connected: false }));
        if (source?.readyState === EventSource.CLOSED && !stopped) {
          void queries.invalidateQueries({ queryKey: ["session"] });
          timer = window.setTimeout(open, AGAIN_MS);
        }
      };
    };

    open();
    const watchdog = window.setInterval(() => {
      setLive((was) => (was.connected && Date.now() / 1000 - was.seen > SILENT_SECONDS ? { ...was, connected: false } : was));
    }, 1000);
    return () => {
      stopped = true;
      window.clearInterval(watchdog);
      window.clearTimeout(timer);
      source?.close();
    };
  }, [queries]);

  const value = useMemo(() => live, [live]);
  return <Context.Provider value={value}>{children}</Context.Provider>;
}
