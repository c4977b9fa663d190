/** Moments as text, all of them in one zone: the browser's, or UTC where the user has chosen it. Pure. */

export type Zone = "local" | "utc";

const formats = new Map<string, Intl.DateTimeFormat>();

/** Formatters are slow to create and are used for every line of a log. */
function format(zone: Zone, kind: string, options: Intl.DateTimeFormatOptions): Intl.DateTimeFormat {
  const key = `${zone} ${kind}`;
  let found = formats.get(key);
  if (!found) {
    found = new Intl.DateTimeFormat("en-US", { ...options, hourCycle: "h23", ...(zone === "utc" ? { timeZone: "UTC" } : {}) });
    formats.set(key, found);
  }
  return found;
}

const CLOCK = { hour: "2-digit", minute: "2-digit", second: "2-digit" } as const;
const DAY = { year: "numeric", month: "short", day: "numeric" } as const;

/** The time of day with milliseconds, as in a log: `18:13:31.042`. */
export const clock = (milliseconds: number, zone: Zone): string =>
  format(zone, "clock", { ...CLOCK, fractionalSecondDigits: 3 }).format(milliseconds);

/** The time of day to the second: `18:13:31`. */
export const clockSeconds = (milliseconds: number, zone: Zone): string => format(zone, "seconds", CLOCK).format(milliseconds);

/** Date and time of day: `Nov 17, 2026, 18:13:31`. */
export const dateTime = (seconds: number, zone: Zone): string => format(zone, "full", { ...DAY, ...CLOCK }).format(seconds * 1000);

/** Date and time with the zone, for tooltips: `Nov 17, 2026, 18:13:31 GMT+1`. */
export const dateTimeZone = (seconds: number, zone: Zone): string =>
  format(zone, "zoned", { ...DAY, ...CLOCK, timeZoneName: "short" }).format(seconds * 1000);

/** What the clock of the page shows: `UTC`, or the browser's zone such as `Europe/Berlin`. */
export const zoneName = (zone: Zone): string => (zone === "utc" ? "UTC" : Intl.DateTimeFormat().resolvedOptions().timeZone);

const DAY_SECONDS = 86400;

/** The first second of a day such as `2026-11-17`, and the first second after it. */
export function dayRange(day: string, zone: Zone): readonly [number, number] {
  const begin = new Date(`${day}T00:00:00${zone === "utc" ? "Z" : ""}`);
  if (zone === "utc") return [begin.getTime() / 1000, begin.getTime() / 1000 + DAY_SECONDS];
  const next = new Date(begin);
  next.setDate(next.getDate() + 1); // a day of a change of clocks has 23 or 25 hours
  return [begin.getTime() / 1000, next.getTime() / 1000];
}
