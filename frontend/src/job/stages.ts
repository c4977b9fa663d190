/** The stages of a job's life. Pure. */
import type { JobState } from "../api/client";

export interface Stage {
  readonly label: string;
  readonly begin: number | null;
  readonly end: number | null;
}

/** Queued, starting, running, each with its begin and end where they are known. */
export function stagesOf(state: JobState): readonly Stage[] {
  const { created = 0, started = null, running = null, finished = null, released = null } = state;
  const ended = released ?? finished ?? null;
  return [
    { label: "Queued", begin: created, end: started ?? ended },
    { label: "Starting", begin: started, end: running ?? (started ? ended : null) },
    { label: "Running", begin: running, end: running ? ended : null },
  ];
}
