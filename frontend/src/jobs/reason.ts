/** What the status cell of a row says beside its phase. Pure. */
import type { JobRow } from "../api/client";
import { isNotResponding } from "../lib/phases";

const EXPLAINED: readonly JobRow["phase"][] = ["Failed", "Queued", "Pending", "Initializing", "Suspended"];

/** The reason for where a job stands; nothing where the phase says all. */
export const reasonOf = (row: JobRow): string => (EXPLAINED.includes(row.phase) || isNotResponding(row) || row.cause ? row.why : "");
