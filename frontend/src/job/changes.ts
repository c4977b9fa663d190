/** Differences between configurations, in the words of the form. Pure. */
import { plural, quantity } from "../lib/format";
import { differences, isObject, type Difference, type Values } from "../wizard/document";
import { labelOf } from "../wizard/fields";

/** The patch laid over a configuration: objects are merged, all else is replaced. */
function merged(value: unknown, patch: unknown): unknown {
  if (!isObject(patch)) return patch;
  const made: Values = isObject(value) ? { ...value } : {};
  for (const [key, part] of Object.entries(patch)) made[key] = merged(made[key], part);
  return made;
}

export const changesOfPatch = (spec: unknown, patch: unknown): readonly Difference[] => differences(spec, merged(spec, patch));

/** A value as people read it: quantities with their unit, lists as words, nothing as a dash. */
export function shownValue(json: string): string {
  let value: unknown;
  try {
    value = JSON.parse(json);
  } catch {
    return json;
  }
  if (value === null || value === "") return "–";
  if (typeof value === "string") return quantity(value);
  if (Array.isArray(value) && value.every((item) => typeof item === "string")) return value.join(" ");
  return typeof value === "object" ? json : String(value);
}

/** A pair of a mapping: `LR=0.1`; of a text with many lines, how many. */
export function pairText(key: string, value: unknown, shown: string): string {
  const lines = typeof value === "string" ? value.trimEnd().split("\n").length : 1;
  return lines > 1 ? `${key} (${plural(lines, "line")})` : `${key}=${shown}`;
}

export const shownPath = (path: string): string => labelOf(path);
