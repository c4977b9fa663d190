/** What a user has set for the page, kept in this browser. */
import { useSyncExternalStore } from "react";
import type { Zone } from "../lib/time";

export interface Preferences {
  readonly theme: "system" | "light" | "dark";
  readonly zone: Zone;
  /** Whether single letters act in the list of jobs. */
  readonly shortcuts: boolean;
  /** Whether the browser shows a notification when a job ends or stops responding. */
  readonly browserNotifications: boolean;
  /** The project that lists show; "" for all. */
  readonly project: string;
  /** Columns of the list that are shown or hidden against the default. */
  readonly columns: Readonly<Record<string, boolean>>;
}

const DEFAULTS: Preferences = { theme: "system", zone: "local", shortcuts: true, browserNotifications: false, project: "", columns: {} };
const KEY = "mpijob.preferences";
const listeners = new Set<() => void>();
let current: Preferences | null = null;

export function preferences(): Preferences {
  if (current === null) {
    try {
      current = { ...DEFAULTS, ...(JSON.parse(localStorage.getItem(KEY) ?? "{}") as Partial<Preferences>) };
    } catch {
      current = DEFAULTS;
    }
  }
  return current;
}

export function setPreferences(change: Partial<Preferences>): void {
  current = { ...preferences(), ...change };
  localStorage.setItem(KEY, JSON.stringify(current));
  listeners.forEach((listener) => listener());
}

const subscribe = (listener: () => void): (() => void) => {
  listeners.add(listener);
  return () => listeners.delete(listener);
};

export const usePreferences = (): Preferences => useSyncExternalStore(subscribe, preferences);
