/** What a group of jobs cost; different currencies are not added. Pure. */
import { money } from "../lib/format";

interface Priced {
  readonly cost?: number;
  readonly currency?: string;
  readonly costs?: Readonly<Record<string, number>>;
}

export function priceOf({ cost, currency, costs }: Priced): string {
  const sums = Object.entries(costs ?? {});
  const shown: readonly (readonly [string, number])[] = sums.length ? sums.sort() : [[currency ?? "", cost ?? 0]];
  return shown.map(([name, amount]) => money(amount, name)).join(" + ");
}
