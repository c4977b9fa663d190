/** A job's configuration under the labels of the form: what was set, and the defaults of what is usual to ask. Pure. */
import { isObject, read } from "../wizard/document";
import { arrangedFields, type Field } from "../wizard/fields";
import { join } from "../wizard/shell";
import { pairText, shownValue } from "./changes";

export interface ConfigurationEntry {
  readonly label: string;
  readonly value: string;
  readonly isDefault: boolean;
}

export interface ConfigurationGroup {
  readonly title: string;
  readonly entries: readonly ConfigurationEntry[];
}

/** One value as text: a mapping as KEY=value, a list of objects as their parts, a file by its length. */
function valueText(value: unknown): string {
  if (isObject(value)) return Object.entries(value).map(([key, one]) => pairText(key, one, shownValue(JSON.stringify(one) ?? ""))).join("\n");
  if (Array.isArray(value) && value.some(isObject)) return value.map((one) => (isObject(one) ? valueText(one).replaceAll("\n", ", ") : String(one))).join("\n");
  return shownValue(JSON.stringify(value) ?? "");
}

function entryOf(field: Field, spec: unknown): ConfigurationEntry | null {
  const found = read(spec, field.path);
  const value = field.kind === "command" && Array.isArray(found) ? join(found.map(String)) : found;
  const isSet = value !== undefined && value !== null && value !== "" && !(Array.isArray(value) && !value.length);
  if (isSet) return { label: field.label, value: valueText(value), isDefault: false };
  const usual = field.step !== "options" && field.initial !== "";
  return usual ? { label: field.label, value: shownValue(JSON.stringify(field.initial)), isDefault: true } : null;
}

/** The groups of the form that have something to show. */
export function configurationGroups(spec: unknown, cluster: boolean): readonly ConfigurationGroup[] {
  const groups = new Map<string, ConfigurationEntry[]>();
  for (const field of arrangedFields(cluster, "default")) {
    const entry = entryOf(field, spec);
    const title = field.group ?? (field.step === "resources" ? "Resources" : "Workload");
    if (entry) groups.set(title, [...(groups.get(title) ?? []), entry]);
  }
  return [...groups].map(([title, entries]) => ({ title, entries }));
}
