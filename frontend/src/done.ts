/** What somebody has looked at in this browser, for the first steps; nothing else is remembered. */
const KEPT = "mpijob-seen";
const listeners = new Set<() => void>();
let known: ReadonlySet<string> | null = null;

export function doneOf(): ReadonlySet<string> {
  known ??= new Set((localStorage.getItem(KEPT) ?? "").split(",").filter(Boolean));
  return known;
}

export function done(what: string): void {
  if (doneOf().has(what)) return;
  known = new Set([...doneOf(), what]);
  localStorage.setItem(KEPT, [...known].join(","));
  for (const one of listeners) one();
}

export const subscribe = (listener: () => void): (() => void) => {
  listeners.add(listener);
  return () => listeners.delete(listener);
};
