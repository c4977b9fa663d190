/** The job whose page is shown, and the addresses within its page: those of an earlier attempt stay with it. */
import { createContext, useContext } from "react";
import type { JobDetail } from "../api/client";
import { jobPath, type JobTab } from "../lib/links";

export interface JobPage {
  readonly detail: JobDetail;
  /** The uid in the address: set while an earlier job of the same name is shown. */
  readonly uid: string;
  /** The attempt in the address, 0 for the job as it stands now. */
  readonly attempt: number;
  readonly tab: JobTab;
}

const JobPageContext = createContext<JobPage | null>(null);
export const JobPageProvider = JobPageContext.Provider;

export function useJobPage() {
  const page = useContext(JobPageContext);
  if (!page) throw new Error("outside of a job's page");
  const { detail, uid, attempt, tab: shown } = page;
  const path = (tab: JobTab = "overview", query: Record<string, string | number | undefined> = {}): string =>
    jobPath(detail.row, tab, { ...query, ...(uid ? { uid } : {}), ...(attempt ? { attempt } : {}) });
  return { detail, row: detail.row, tab: shown, path };
}
