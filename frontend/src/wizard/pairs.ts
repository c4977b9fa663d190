/** Rows of key and value, as the form edits them: a row that is begun is no entry yet. Pure. */
import { isObject, read, write, type Values } from "./document";

export interface Pair {
  readonly key: string;
  readonly value: string;
}

/** The entries of a mapping, or the secrets of a job as variable and source. */
export function pairsIn(job: Values, path: string): readonly Pair[] {
  const value = read(job, path);
  if (path === "secrets") return (Array.isArray(value) ? value.filter(isObject) : []).map((one) => ({ key: String(one["env"] ?? ""), value: String(one["source"] ?? "") }));
  return isObject(value) ? Object.entries(value).map(([key, one]) => ({ key, value: typeof one === "object" ? JSON.stringify(one) : String(one) })) : [];
}

/** The job file with these entries; rows without a key are left out. */
export function withPairs(text: string, path: string, pairs: readonly Pair[]): string {
  const kept = pairs.filter(({ key }) => key.trim());
  if (path === "secrets") return write(text, path, kept.length ? kept.map(({ key, value }) => ({ env: key.trim(), source: value })) : undefined);
  return write(text, path, kept.length ? Object.fromEntries(kept.map(({ key, value }) => [key.trim(), value])) : undefined);
}

/** `KEY=value` as one row: what is pasted from a shell or a file of variables. */
export function parsePairs(text: string): readonly Pair[] {
  return text.split("\n").flatMap((line) => {
    const trimmed = line.trim().replace(/^export\s+/, "");
    const at = trimmed.indexOf("=");
    return !trimmed || trimmed.startsWith("#") || at < 1 ? [] : [{ key: trimmed.slice(0, at).trim(), value: trimmed.slice(at + 1) }];
  });
}

export const samePairs = (one: readonly Pair[], other: readonly Pair[]): boolean =>
  one.length === other.length && one.every(({ key, value }, index) => key === other[index]?.key && value === other[index]?.value);
