/** The runs and attempts of a job as choices. Pure. */
import type { RunRow } from "../api/client";

export interface RunChoice {
  readonly value: string;
  readonly label: string;
  readonly description: string;
  readonly uid: string;
  readonly attempt: number;
  /** Whether it is the last attempt of its run. */
  readonly isLast: boolean;
  /** What its address has beside the job's name. */
  readonly query: Record<string, string | number>;
}

/** Each attempt of each run, newest first; the newest is the job as it stands now. */
export const runChoices = (runs: readonly RunRow[]): RunChoice[] =>
  runs.flatMap((run, index) =>
    [...run.attempts].reverse().map(({ attempt, phase }, place) => {
      const isLast = place === 0;
      const count = run.attempts.length;
      const words = [runs.length > 1 ? `Run ${run.run || runs.length - index} of ${runs[0]?.run || runs.length}` : "", count > 1 ? `Attempt ${attempt} of ${count}` : ""];
      const state = [phase, index || !isLast ? "" : "latest", run.deleted === null || !isLast ? "" : "record only"];
      return {
        value: `${run.row.uid}/${attempt}`,
        label: words.filter(Boolean).join(", ") || "Latest run",
        description: state.filter(Boolean).join(", "),
        uid: run.row.uid,
        attempt,
        isLast,
        query: { ...(index ? { uid: run.row.uid } : {}), ...(isLast ? {} : { attempt }) },
      };
    }),
  );
