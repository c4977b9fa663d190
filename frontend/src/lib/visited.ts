/** What somebody has looked at in this browser, for the first steps; nothing else is remembered. */
import { useSyncExternalStore } from "react";

const KEY = "mpijob.visited";
const listeners = new Set<() => void>();
let known: ReadonlySet<string> | null = null;

const visited = (): ReadonlySet<string> => (known ??= new Set((localStorage.getItem(KEY) ?? "").split(",").filter(Boolean)));

export function markVisited(what: "logs" | "why" | "fixed"): void {
  if (visited().has(what)) return;
  known = new Set([...visited(), what]);
  localStorage.setItem(KEY, [...known].join(","));
  listeners.forEach((listener) => listener());
}

const subscribe = (listener: () => void): (() => void) => {
  listeners.add(listener);
  return () => listeners.delete(listener);
};

export const useVisited = (): ReadonlySet<string> => useSyncExternalStore(subscribe, visited);
