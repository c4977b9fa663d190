/** A curve as a path of an SVG. Pure. */

const MARGIN = 2;
const MOST_POINTS = 200;

/** Return the path; "" where there are fewer than two numbers. */
export function sparklinePath(values: readonly (number | null)[], width: number, height: number): string {
  const every = Math.max(1, Math.ceil(values.length / MOST_POINTS));
  const points = values.flatMap((value, index) => (value !== null && Number.isFinite(value) && index % every === 0 ? [[index, value] as const] : []));
  if (points.length < 2) return "";
  const numbers = points.map(([, value]) => value);
  const [low, high] = [Math.min(...numbers), Math.max(...numbers)];
  const x = (index: number): number => MARGIN + ((width - 2 * MARGIN) * index) / Math.max(1, values.length - 1);
  const y = (value: number): number => (high === low ? height / 2 : height - MARGIN - ((height - 2 * MARGIN) * (value - low)) / (high - low));
  return points.map(([index, value], at) => `${at ? "L" : "M"}${x(index).toFixed(1)} ${y(value).toFixed(1)}`).join("");
}
