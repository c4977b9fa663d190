/** The fields of the form: where each stands in the job file, and how its text is read. What a field is for, and what
 * is wrong with it, comes from the server. Pure. */
import { noted, read, snippet, write, type Values } from "./document";
import { FORM } from "./form";

export const STEPS = ["start", "workload", "resources", "options", "review"] as const;
export type Step = (typeof STEPS)[number];
export const STEP_LABELS: Record<Step, string> = {
  start: "Start from",
  workload: "Workload",
  resources: "Resources",
  options: "Options",
  review: "Review",
};

export const isStep = (text: string | null): text is Step => (STEPS as readonly string[]).includes(text ?? "");

export interface Field {
  readonly path: string;
  readonly step: Step;
  readonly label: string;
  readonly help?: string;
  readonly kind:
    | "text" | "word" | "number" | "switch" | "choice" | "pairs" | "list" | "long" | "yaml" // by the type of the field
    | "command" | "workers" | "gpus" | "cpu" | "memory" | "volumes" | "secrets" | "project";
  readonly initial: string;
  readonly options?: readonly string[];
  readonly offered?: "images" | "projects" | "queues" | "priorities";
  readonly group?: string;
  readonly cluster?: boolean;
  readonly required?: boolean;
}

export const CLUSTER_ONLY = "Cluster-only settings";

/** The form at one place: what only a cluster obeys stands apart on one machine. */
export const arrangedFields = (cluster: boolean, namespace: string): readonly Field[] =>
  FORM.map((field) =>
    field.cluster && !cluster
      ? { ...field, step: "options" as const, group: CLUSTER_ONLY }
      : field.path === "namespace"
        ? { ...field, initial: namespace }
        : field,
  ).sort((one, other) => Number(one.group === CLUSTER_ONLY) - Number(other.group === CLUSTER_ONLY));

/** The field in which a path of the job file stands; of a part that is wrong as a whole, its first field. */
export const fieldAt = (path: string, fields: readonly Field[] = FORM): Field | undefined =>
  fields.find((field) => path === field.path || path.startsWith(`${field.path}.`) || path.startsWith(`${field.path}[`)) ??
  (path ? fields.find((field) => field.path.startsWith(`${path}.`)) : undefined);

/** A path of the job file in the words of the form: `env.LR` as `Environment variables: LR`. */
export function labelOf(path: string): string {
  const field = FORM.find((one) => path === one.path || path.startsWith(`${one.path}.`));
  if (!field) return path;
  const rest = path.slice(field.path.length + 1);
  return rest ? `${field.label}: ${rest}` : field.label;
}

export const inputId = (field: Field): string => `field-${field.path.replaceAll(".", "-")}`;

/** The text that the form shows for a field. */
export function shownText(text: string, job: Values, field: Field): string {
  const value = read(job, field.path);
  if (value === undefined || value === null) return field.initial;
  if (field.kind === "yaml") return typeof value === "string" ? value : snippet(text, field.path);
  if (field.kind === "list") return Array.isArray(value) ? value.join("\n") : String(value);
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

const linesOf = (text: string): string[] => text.split("\n").filter((line) => line.trim());
const isNumber = (text: string): boolean => /^-?\d+(\.\d+)?$/.test(text.trim());

function parsedValue(field: Field, text: string): unknown {
  switch (field.kind) {
    case "number":
    case "word":
    case "workers":
    case "gpus":
    case "cpu":
    case "memory":
      return isNumber(text) ? Number(text) : text; // the server says what is wrong with it
    case "switch":
      return text === field.initial ? undefined : text === "true";
    case "list":
      return linesOf(text);
    case "yaml":
      return noted(text) ?? text;
    default:
      return text;
  }
}

/** The text of the job file with a field as it was typed. */
export function withTyped(text: string, field: Field, typed: string): string {
  if (typed.trim() === "") return write(text, field.path, field.path === "name" ? typed : undefined);
  return write(text, field.path, parsedValue(field, typed));
}

/** Whether a value is what holds without it. */
export const isInitial = (path: string, value: string): boolean => FORM.some((field) => field.path === path && value === field.initial);
