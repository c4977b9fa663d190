/** The fields of the form: where each stands in the job file, and how its text is read. What a field is for and how
 * it is refused comes from the server. */
import { read, write, type Values } from "./document";

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
  readonly kind: "text" | "number" | "lines" | "list" | "choice" | "long" | "command" | "workers" | "gpus" | "volumes";
  readonly initial: string;
  readonly options?: readonly string[];
  readonly offered?: "images" | "projects" | "queues" | "priorities";
  readonly group?: string;
  readonly cluster?: boolean;
  readonly required?: boolean;
}

const TOPOLOGY = ["any", "packed-node", "packed-rack", "packed-zone", "spread"];

export const FIELDS: readonly Field[] = [
  { path: "name", step: "basics", label: "Name", kind: "text", initial: "", required: true, help: "Lower-case letters, digits and dashes; it is part of the workers' names." },
  { path: "namespace", step: "basics", label: "Project", kind: "text", initial: "default", offered: "projects", help: "The namespace that the job belongs to." },
  { path: "description", step: "basics", label: "Description", kind: "long", initial: "", help: "For you and your team; Markdown." },
  { path: "image", step: "workload", label: "Image", kind: "text", initial: "", offered: "images", cluster: true, help: "The container image with your program and an MPI library." },
  { path: "command", step: "workload", label: "Command", kind: "command", initial: "", required: true, help: "What every rank runs, as you would type it: python train.py --epochs 3" },
  { path: "code.path", step: "workload", label: "Code directory", kind: "text", initial: "", help: "A directory that goes along with the job; paths start where the server was started." },
  { path: "env", step: "workload", label: "Environment", kind: "lines", initial: "", help: "One KEY=value a line." },
  { path: "mpi", step: "workload", label: "MPI library", kind: "choice", initial: "auto", options: ["auto", "openmpi", "mpich", "intel"], help: "auto takes what is there and fits." },
  { path: "workers", step: "resources", label: "Workers", kind: "workers", initial: "4", help: "How many workers run at once; 2 to 100 are usual." },
  { path: "resources.gpu", step: "resources", label: "GPUs per worker", kind: "gpus", initial: "0", },
  { path: "slots", step: "resources", label: "Ranks per worker", kind: "number", initial: "1", help: "How many ranks each worker starts; with GPUs, usually one for each GPU." },
  { path: "resources.cpu", step: "resources", label: "CPU per worker", kind: "text", initial: "1", help: "Cores: 2, or 500m for half a core." },
  { path: "resources.memory", step: "resources", label: "Memory per worker", kind: "text", initial: "1Gi", help: "For example 512Mi or 4Gi. A worker that uses more is ended." },
  { path: "queue", step: "advanced", group: "Scheduling", label: "Queue", kind: "text", initial: "", offered: "queues" },
  { path: "priority", step: "advanced", group: "Scheduling", label: "Priority", kind: "text", initial: "0", offered: "priorities" },
  { path: "placement.topology", step: "advanced", group: "Scheduling", label: "How close together", kind: "choice", initial: "any", options: TOPOLOGY, cluster: true },
  { path: "placement.node_selector", step: "advanced", group: "Scheduling", label: "Only nodes with labels", kind: "lines", initial: "", cluster: true, help: "One key=value a line." },
  { path: "launch.map_by", step: "advanced", group: "MPI", label: "Deal ranks out by", kind: "text", initial: "" },
  { path: "launch.bind_to", step: "advanced", group: "MPI", label: "Bind ranks to", kind: "text", initial: "" },
  { path: "launch.flags", step: "advanced", group: "MPI", label: "Flags for mpirun", kind: "list", initial: "", help: "One a line, as mpirun takes them." },
  { path: "volumes", step: "advanced", group: "Data", label: "Volumes and data connections", kind: "volumes", initial: "" },
  { path: "retry.limit", step: "advanced", group: "When it fails", label: "Retries", kind: "number", initial: "0" },
  { path: "deadline_seconds", step: "advanced", group: "When it fails", label: "Time limit in seconds", kind: "number", initial: "" },
  { path: "keep_on_failure_seconds", step: "advanced", group: "When it fails", label: "Keep failed workers, seconds", kind: "number", initial: "0" },
  { path: "labels", step: "advanced", group: "Labels", label: "Labels", kind: "lines", initial: "", help: "One key=value a line." },
];

export const fieldAt = (path: string): Field | undefined =>
  FIELDS.find((field) => path === field.path || path.startsWith(`${field.path}.`) || path.startsWith(`${field.path}[`));

export const idOf = (field: Field): string => `field-${field.path.replaceAll(".", "-")}`;

/** Return the text that the form shows for a field. */
export function shown(job: Values, field: Field): string {
  const value = read(job, field.path);
  if (value === undefined || value === null) return field.initial;
  if (field.kind === "lines") return Object.entries(value).map(([key, one]) => `${key}=${String(one)}`).join("\n");
  if (field.kind === "list") return Array.isArray(value) ? value.join("\n") : String(value);
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

function meant(field: Field, typed: string): unknown {
  switch (field.kind) {
    case "number":
    case "workers":
    case "gpus":
      return /^-?\d+(\.\d+)?$/.test(typed.trim()) ? Number(typed) : typed; // the server says what is wrong with it
    case "list":
      return typed.split("\n").filter((line) => line.trim());
    case "lines":
      return Object.fromEntries(
        typed.split("\n").filter((line) => line.trim()).map((line) => {
          const at = line.indexOf("=");
          return at < 0 ? [line.trim(), ""] : [line.slice(0, at).trim(), line.slice(at + 1)];
        }),
      );
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
export const isInitial = (path: string, value: string): boolean => FIELDS.some((field) => field.path === path && value === field.initial);
