/** What the status cell of a row says beside its phase. Pure. */
import type { JobRow } from "../api/client";
import { capitalized } from "../lib/format";
import { isNotResponding } from "../lib/phases";

const EXPLAINED: readonly JobRow["phase"][] = ["Failed", "Queued", "Pending", "Initializing", "Suspended"];

/** The reason for where a job stands; nothing where the phase says all. A cause may begin with the name of a program, which stays as it is. */
export function reasonOf(row: JobRow): string {
  if (!EXPLAINED.includes(row.phase) && !isNotResponding(row) && !row.cause) return "";
  return row.phase === "Failed" ? row.why : capitalized(row.why);
}
