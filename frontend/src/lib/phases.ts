/** The phases of a job as the page groups them. Pure. */
import type { JobRow, Phase } from "../api/client";

/** In the order in which filters and counts show them. */
export const PHASES: readonly Phase[] = [
  "Running",
  "Queued",
  "Pending",
  "Initializing",
  "Suspended",
  "Failed",
  "Succeeded",
  "Cancelled",
  "Deleting",
];

const FINAL: readonly Phase[] = ["Succeeded", "Failed", "Cancelled"];

/** Whether nothing more happens to the job by itself. */
export const isFinal = (phase: Phase): boolean => FINAL.includes(phase);

/** Warnings of a running job that mean that it does not get on. */
const NOT_RESPONDING = new Set(["ALL_IDLE", "RANK_IDLE", "JOB_SILENT", "RANK_SILENT"]);

export const isNotResponding = (row: Pick<JobRow, "phase" | "cause">): boolean => row.phase === "Running" && NOT_RESPONDING.has(row.cause);

/** Where a failed worker comes before one that runs. */
const WORST_FIRST: readonly Phase[] = ["Failed", "Cancelled", "Pending", "Queued", "Initializing", "Suspended", "Deleting", "Running", "Succeeded"];

export const bySeverity = (one: { phase: Phase; index: number }, other: { phase: Phase; index: number }): number =>
  WORST_FIRST.indexOf(one.phase) - WORST_FIRST.indexOf(other.phase) || one.index - other.index;
