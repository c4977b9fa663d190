/** A job that is being written: the whole job is kept, the form shows the parts that most people need. */
import type { Job } from "../api/client";

export type Draft = Record<string, unknown> & { name?: string };

export interface Field {
  readonly path: string;
  readonly label: string;
  readonly help: string;
  readonly kind: "text" | "number" | "lines" | "choice";
  readonly initial: string;
  readonly options?: readonly string[];
  readonly advanced?: boolean;
  readonly cluster?: boolean;
  readonly small?: boolean;
}

export const FIELDS: readonly Field[] = [
  { path: "name", label: "Name", kind: "text", initial: "", help: "Lower-case letters, digits and dashes; it is part of the workers' names." },
  { path: "namespace", label: "Project", kind: "text", initial: "default", help: "The namespace that the job belongs to." },
  { path: "image", label: "Image", kind: "text", initial: "", cluster: true, help: "The container image with your program and an MPI library." },
  { path: "command", label: "Command", kind: "text", initial: "", help: "What every rank runs, as you would type it: python train.py --epochs 3" },
  { path: "workers", small: true, label: "Workers", kind: "number", initial: "4", help: "How many workers run at once. 2 to 100 are usual." },
  { path: "slots", small: true, label: "Ranks per worker", kind: "number", initial: "1", help: "How many ranks each worker starts; with GPUs, usually one for each GPU." },
  { path: "resources.cpu", small: true, label: "CPU per worker", kind: "text", initial: "1", help: "Cores: 2, or 500m for half a core." },
  { path: "resources.memory", small: true, label: "Memory per worker", kind: "text", initial: "1Gi", help: "For example 512Mi or 4Gi. A worker that uses more is ended." },
  { path: "resources.gpu", small: true, label: "GPUs per worker", kind: "number", initial: "0", help: "0 for none." },
  { path: "code.path", label: "Code directory", kind: "text", initial: "", help: "A directory that goes along with the job; paths start where the server was started." },
  { path: "env", label: "Environment", kind: "lines", initial: "", help: "One KEY=value a line." },
  { path: "description", label: "Description", kind: "text", initial: "", advanced: true, help: "For you and your team." },
  { path: "mpi", label: "MPI library", kind: "choice", initial: "auto", options: ["auto", "mpich", "openmpi", "intel"], advanced: true, help: "auto takes what is there and fits." },
  { path: "queue", label: "Queue", kind: "text", initial: "", advanced: true, help: "Where the job waits when there is no room." },
  { path: "retry.limit", label: "Retries", kind: "number", initial: "0", advanced: true, help: "How often a failed job is tried again." },
  { path: "deadline_seconds", label: "Time limit in seconds", kind: "number", initial: "", advanced: true, help: "The job is ended after this time." },
];

export function read(draft: unknown, path: string): unknown {
  return path.split(".").reduce<unknown>((at, key) => (at as Record<string, unknown> | undefined)?.[key], draft);
}

export function write(draft: Draft, path: string, value: unknown): Draft {
  const [first = "", ...rest] = path.split(".");
  if (!rest.length) {
    const next = { ...draft };
    if (value === undefined) delete next[first];
    else next[first] = value;
    return next;
  }
  const inner = write({ ...((draft[first] as Draft | undefined) ?? {}) }, rest.join("."), value);
  return write(draft, first, Object.keys(inner).length ? inner : undefined);
}

/** Return the text that the form shows for a field. */
export function shown(draft: Draft, field: Field): string {
  const value = read(draft, field.path);
  if (value === undefined || value === null) return field.initial;
  if (field.kind === "lines") return Object.entries(value as Record<string, string>).map(([key, one]) => `${key}=${one}`).join("\n");
  return String(value);
}

/** Return the draft with a field as it was typed; what makes no sense is left for the server to refuse. */
export function typed(draft: Draft, field: Field, text: string): Draft {
  if (text === field.initial || text.trim() === "") return write(draft, field.path, field.path === "name" ? text : undefined);
  if (field.kind === "number") return write(draft, field.path, /^-?\d+$/.test(text.trim()) ? Number(text) : text);
  if (field.kind === "lines") {
    const pairs = text.split("\n").filter((line) => line.trim()).map((line) => {
      const at = line.indexOf("=");
      return at < 0 ? [line.trim(), ""] : [line.slice(0, at).trim(), line.slice(at + 1)];
    });
    return write(draft, field.path, Object.fromEntries(pairs));
  }
  return write(draft, field.path, text);
}

/** Lay a patch over a job: objects are merged, everything else is replaced. */
export function merged(job: unknown, patch: unknown): unknown {
  if (!isObject(job) || !isObject(patch)) return patch;
  const made: Record<string, unknown> = { ...job };
  for (const [key, value] of Object.entries(patch)) made[key] = merged(job[key], value);
  return made;
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** Return how one job differs from another, part by part. */
export function differences(was: unknown, is: unknown, path = ""): { path: string; was: string; is: string }[] {
  if (isObject(was) || isObject(is)) {
    const keys = new Set([...Object.keys((was as object) ?? {}), ...Object.keys((is as object) ?? {})]);
    return [...keys].flatMap((key) =>
      differences((was as Record<string, unknown>)?.[key], (is as Record<string, unknown>)?.[key], path ? `${path}.${key}` : key),
    );
  }
  const [before, after] = [JSON.stringify(was) ?? "–", JSON.stringify(is) ?? "–"];
  return before === after ? [] : [{ path, was: before, is: after }];
}

export const nextName = (name: string): string => {
  const match = /^(.*?)(?:-(\d+))?$/.exec(name);
  return `${match?.[1] ?? name}-${Number(match?.[2] ?? 1) + 1}`;
};

export const asDraft = (job: Job): Draft => ({ ...job }) as unknown as Draft;
