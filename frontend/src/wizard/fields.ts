/** The fields of the form: where each stands in the job file, and how its text is read. What a field is for and how
 * it is refused comes from the server. */
import { isObject, noted, read, snippet, write, type Values } from "./document";
import { FORM } from "./form";

export const STEPS = ["type", "basics", "workload", "resources", "advanced", "review"] as const;
export type Step = (typeof STEPS)[number];
export const STEP_WORDS: Record<Step, string> = {
  type: "Type of job",
  basics: "Basics",
  workload: "Workload",
  resources: "Resources",
  advanced: "Advanced",
  review: "Review",
};

export interface Field {
  readonly path: string;
  readonly step: Step;
  readonly label: string;
  readonly help?: string;
  readonly kind:
    | "text" | "word" | "number" | "switch" | "choice" | "lines" | "list" | "long" | "yaml" // by the type of the field
    | "command" | "workers" | "gpus" | "volumes" | "secrets" | "project";
  readonly initial: string;
  readonly options?: readonly string[];
  readonly offered?: "images" | "projects" | "queues" | "priorities";
  readonly group?: string;
  readonly cluster?: boolean;
  readonly required?: boolean;
}

const ELSEWHERE = "Only on a cluster";

/** The form at one place: what only a cluster obeys stands apart on one machine. */
export const arranged = (cluster: boolean, namespace: string): readonly Field[] =>
  FORM.map((field) =>
    field.cluster && !cluster
      ? { ...field, step: "advanced" as const, group: ELSEWHERE }
      : field.path === "namespace"
        ? { ...field, initial: namespace }
        : field,
  ).sort((one, other) => Number(one.group === ELSEWHERE) - Number(other.group === ELSEWHERE));

/** The field in which a path of the job file stands; of a part that is wrong as a whole, its first field. */
export const fieldAt = (path: string, fields: readonly Field[]): Field | undefined =>
  fields.find((field) => path === field.path || path.startsWith(`${field.path}.`) || path.startsWith(`${field.path}[`)) ??
  (path ? fields.find((field) => field.path.startsWith(`${path}.`)) : undefined);

export const idOf = (field: Field): string => `field-${field.path.replaceAll(".", "-")}`;

/** Return the text that the form shows for a field. */
export function shown(text: string, job: Values, field: Field): string {
  const value = read(job, field.path);
  if (value === undefined || value === null) return field.initial;
  if (field.kind === "yaml") return typeof value === "string" ? value : snippet(text, field.path);
  if (field.kind === "lines" && isObject(value)) return Object.entries(value).map(([key, one]) => `${key}=${String(one)}`).join("\n");
  if (field.kind === "list") return Array.isArray(value) ? value.join("\n") : String(value);
  if (field.kind === "secrets" && Array.isArray(value))
    return value.filter(isObject).map((one) => `${String(one["env"] ?? "")}=${String(one["source"] ?? "")}`).join("\n");
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

const lines = (typed: string): string[] => typed.split("\n").filter((line) => line.trim());

/** The two sides of KEY=value. */
function sides(line: string): [string, string] {
  const at = line.indexOf("=");
  return at < 0 ? [line.trim(), ""] : [line.slice(0, at).trim(), line.slice(at + 1)];
}

function meant(field: Field, typed: string): unknown {
  switch (field.kind) {
    case "number":
    case "word":
    case "workers":
    case "gpus":
      return /^-?\d+(\.\d+)?$/.test(typed.trim()) ? Number(typed) : typed; // the server says what is wrong with it
    case "switch":
      return typed === field.initial ? undefined : typed === "true";
    case "list":
      return lines(typed);
    case "lines":
      return Object.fromEntries(lines(typed).map(sides));
    case "secrets":
      return lines(typed).map(sides).map(([env, source]) => ({ env, source }));
    case "yaml":
      return noted(typed) ?? typed;
    default:
      return typed;
  }
}

/** Return the text of the job file with a field as it was typed. */
export function typed(text: string, field: Field, words: string): string {
  if (words.trim() === "") return write(text, field.path, field.path === "name" ? words : undefined);
  return write(text, field.path, meant(field, words));
}

/** Whether a value is what holds without it. */
export const isInitial = (path: string, value: string): boolean => FORM.some((field) => field.path === path && value === field.initial);
