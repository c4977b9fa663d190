/** The job as the review lists it: what was set, and the defaults that matter. Pure. */
import { pairText } from "../job/changes";
import { plural } from "../lib/format";
import { partsOf, workersText } from "../lib/workers";
import { isObject, read, type Values } from "./document";
import type { Field, Step } from "./fields";
import { join } from "./shell";

export interface ReviewEntry {
  readonly label: string;
  readonly value: string;
  readonly isChanged?: boolean;
}

export interface ReviewSection {
  readonly step: Step;
  readonly entries: readonly ReviewEntry[];
}

const text = (value: unknown): string => {
  if (Array.isArray(value)) return value.every((one) => typeof one === "string") ? join(value.map(String)) : value.map((one) => (isObject(one) ? pairs(one) : String(one))).join("; ");
  if (isObject(value)) return pairs(value);
  return String(value);
};

const pairs = (value: Values): string =>
  Object.entries(value)
    .map(([key, one]) => pairText(key, one, isObject(one) ? pairs(one) : String(one)))
    .join(", ");

/** Workers with what each of them has, in one line. */
function layout(job: Values): ReviewEntry {
  const groups = Array.isArray(job["groups"]) ? job["groups"].filter(isObject) : [];
  const sized = { ...job, resources: isObject(job["resources"]) ? job["resources"] : {}, groups };
  const workers = Number(read(job, "workers") ?? 4);
  const ranks = partsOf(sized, workers).reduce((sum, part) => sum + part.workers * part.slots, 0);
  return { label: "Workers", value: `${workersText(sized, workers)} · ${plural(ranks, "rank")}` };
}

const IN_LAYOUT = ["workers", "slots", "groups", "resources.gpu", "resources.cpu", "resources.memory"];
const ALWAYS = ["name", "namespace", "command"];

/** The sections of the review; options only where some are set. */
export function reviewSections(job: Values, fields: readonly Field[]): readonly ReviewSection[] {
  const entriesOf = (step: Step): readonly ReviewEntry[] =>
    fields
      .filter((field) => field.step === step && !IN_LAYOUT.includes(field.path))
      .flatMap((field): ReviewEntry[] => {
        const value = read(job, field.path);
        const isSet = value !== undefined && value !== null && value !== "";
        if (field.path === "command" && !isSet && (job["script"] || job["programs"])) return [];
        if (!isSet) return ALWAYS.includes(field.path) ? [{ label: field.label, value: field.initial || "–" }] : [];
        return [{ label: field.label, value: field.path === "command" && Array.isArray(value) ? join(value.map(String)) : text(value) }];
      });
  const sections: ReviewSection[] = [
    { step: "workload", entries: entriesOf("workload") },
    { step: "resources", entries: [layout(job), ...entriesOf("resources")] },
    { step: "options", entries: entriesOf("options") },
  ];
  return sections.filter(({ entries }) => entries.length);
}
