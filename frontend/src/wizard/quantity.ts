/** A quantity as number and unit. Pure. */

export const MEMORY_UNITS = ["Mi", "Gi", "Ti"] as const;

/** `512Mi` as 512 and Mi; null for what is written otherwise and stays as it is. */
export function splitMemory(text: string): { amount: string; unit: string } | null {
  if (text === "") return { amount: "", unit: "Gi" };
  const match = /^(\d+(?:\.\d+)?)(Mi|Gi|Ti)$/.exec(text.trim());
  return match ? { amount: match[1] ?? "", unit: match[2] ?? "Gi" } : null;
}

export const joinMemory = (amount: string, unit: string): string => (amount.trim() ? `${amount.trim()}${unit}` : "");

/** Cores as they are typed: `500m` as 0.5; what is no such quantity stays as it is. */
export function coresOf(text: string): string {
  const milli = /^(\d+)m$/.exec(text.trim());
  return milli ? String(Number(milli[1]) / 1000) : text;
}
