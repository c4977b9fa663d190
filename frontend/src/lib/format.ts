/** Amounts as people read them; durations have the same form as on the command line. Pure. */

/** A run time: `8.4s`, `45m10s`, `1h02m`, `3d04h`. */
export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined) return "–";
  const positive = Math.max(0, seconds);
  if (positive < 9.95) return `${positive.toFixed(1)}s`;
  const whole = Math.round(positive);
  const padded = (value: number) => String(value).padStart(2, "0");
  if (whole < 60) return `${whole}s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m${padded(whole % 60)}s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)}h${padded(Math.floor((whole % 3600) / 60))}m`;
  return `${Math.floor(whole / 86400)}d${padded(Math.floor((whole % 86400) / 3600))}h`;
}

const SCALES = [
  { unit: "day", seconds: 86400 },
  { unit: "h", seconds: 3600 },
  { unit: "min", seconds: 60 },
  { unit: "s", seconds: 1 },
] as const;

/** An estimate: one unit, no false precision: `25 s`, `40 min`, `3 h`, `2 days`. */
export function roughly(seconds: number): string {
  const { unit, seconds: size } = SCALES.find((scale) => seconds >= 1.95 * scale.seconds) ?? SCALES[3];
  const value = Math.max(seconds, seconds > 0 ? 1 : 0) / size; // what takes a moment takes no 0 s
  const shown = value < 9.5 && unit !== "s" ? Number(value.toFixed(1)) : Math.round(value);
  return unit === "day" ? plural(shown, "day") : `${shown} ${unit}`;
}

/** A range of estimates, with the unit once where both ends share it: `32–55 min`. */
export function range(low: number, high: number): string {
  const [from, to] = [roughly(low), roughly(high)];
  if (from === to) return from;
  const [amount = "", unit = ""] = from.split(" ");
  return to.endsWith(` ${unit}`) ? `${amount}–${to}` : `${from}–${to}`;
}

/** How long ago something was: `just now`, `12m ago`, `3d ago`. */
export function ago(moment: number | null | undefined, now: number): string {
  if (!moment) return "–";
  const seconds = Math.max(0, Math.floor(now - moment));
  if (seconds < 5) return "just now";
  return `${age(seconds)} ago`;
}

/** A time span with one unit: `12m`, `3d`. */
export function age(seconds: number): string {
  const steps = [
    { unit: "d", size: 86400, from: 2 * 86400 },
    { unit: "h", size: 3600, from: 2 * 3600 },
    { unit: "m", size: 60, from: 60 },
  ];
  const step = steps.find(({ from }) => seconds >= from);
  return step ? `${Math.floor(seconds / step.size)}${step.unit}` : `${Math.floor(seconds)}s`;
}

const BYTE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

export function bytes(amount: number | null | undefined): string {
  if (amount === null || amount === undefined) return "–";
  let value = amount;
  let unit = 0;
  while (value >= 1024 && unit < BYTE_UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${Number(value.toFixed(value < 10 ? 1 : 0))} ${BYTE_UNITS[unit]}`;
}

export const bytesPerSecond = (amount: number): string => `${bytes(amount)}/s`;

/** A number without trailing zeros, at most so many decimals. */
export const decimal = (value: number, digits = 2): string => String(Number(value.toFixed(digits)));

/** A number with so many significant digits: what a metric of a training shows. */
export const significant = (value: number | null | undefined, digits = 4): string => {
  if (value === null || value === undefined) return "NaN";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return Number(value.toPrecision(digits)).toExponential();
  return String(Number(value.toPrecision(digits)));
};

const CENT = 0.01;

/** An amount of money; less than a cent is not told more precisely. */
export const money = (amount: number, currency: string): string =>
  (amount > 0 && amount < CENT ? `< ${CENT} ${currency}` : `${amount.toFixed(2)} ${currency}`).trim();

/** An estimated cost: `≈ 118.00 EUR`. */
export const cost = (amount: number, currency: string): string => (amount > 0 && amount < CENT ? money(amount, currency) : `≈ ${money(amount, currency)}`);

const MPI_NAMES: Record<string, string> = { mpich: "MPICH", openmpi: "Open MPI", intel: "Intel MPI", custom: "a custom MPI library" };

/** An MPI library as it is called: `mpich 5.0.2` as `MPICH 5.0.2`. */
export function mpiName(text: string): string {
  const [family = "", ...version] = text.trim().split(" ");
  return [MPI_NAMES[family] ?? family, ...version].join(" ");
}

export const percent = (share: number): string => `${Math.round(100 * share)}%`;

export const plural = (count: number, noun: string, nouns = `${noun}s`): string => `${count} ${count === 1 ? noun : nouns}`;

export const capitalized = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);

const UNITS: Record<string, string> = { Ki: "KiB", Mi: "MiB", Gi: "GiB", Ti: "TiB", k: "kB", M: "MB", G: "GB", T: "TB" };

/** A quantity of a job file in words: `512Mi` as `512 MiB`, `500m` as `0.5`. */
export function quantity(text: string): string {
  const match = /^(\d+(?:\.\d+)?)([KMGT]i|[kMGT])$/.exec(text.trim());
  if (match) return `${match[1]} ${UNITS[match[2] ?? ""] ?? match[2]}`;
  const milli = /^(\d+)m$/.exec(text.trim());
  return milli ? decimal(Number(milli[1]) / 1000, 3) : text;
}

/** Numbers as `0-3,5`. */
export function spans(numbers: readonly number[]): string {
  const sorted = [...new Set(numbers)].sort((a, b) => a - b);
  const found: [number, number][] = [];
  for (const number of sorted) {
    const last = found.at(-1);
    if (last && number === last[1] + 1) last[1] = number;
    else found.push([number, number]);
  }
  return found.map(([first, last]) => (first === last ? String(first) : `${first}-${last}`)).join(",");
}

/** `0-3,5` as numbers; what is not a number is left out. */
export function parseSpans(text: string): number[] {
  return text.split(",").flatMap((part) => {
    const [first = "", last = first] = part.trim().split("-");
    const [from, to] = [Number(first), Number(last)];
    if (!first || !Number.isInteger(from) || !Number.isInteger(to) || to - from > 1000) return [];
    return Array.from({ length: Math.max(0, to - from + 1) }, (_, index) => from + index);
  });
}
