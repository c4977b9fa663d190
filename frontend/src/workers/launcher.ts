/** The launcher as the page shows it: as the server tells it, or what its exit code and the job's phase mean. Pure. */
import type { JobDetail, LauncherState, Phase } from "../api/client";

export interface Launcher {
  readonly phase: Phase;
  readonly node: string;
  readonly reason: string;
  readonly exitCode: number | null;
  readonly restarts: number;
  readonly memoryBytes: number | null;
  readonly memoryLimitBytes: number | null;
  readonly cores: number | null;
  readonly gpus: readonly string[];
}

/** A launcher's phases in the words of a worker's. */
const PHASES: Record<LauncherState["phase"], Phase> = {
  Pending: "Pending",
  Scheduled: "Pending",
  Starting: "Initializing",
  Ready: "Initializing",
  Running: "Running",
  Succeeded: "Succeeded",
  Failed: "Failed",
  Cancelled: "Cancelled",
};

export function launcherOf({ state, row }: Pick<JobDetail, "state" | "row">): Launcher {
  const known = state.launcher;
  if (known)
    return {
      phase: PHASES[known.phase],
      node: known.node ?? "",
      reason: [known.reason, known.message].filter(Boolean).join(": "),
      exitCode: known.exit_code ?? null,
      restarts: known.restarts ?? 0,
      memoryBytes: known.memory_bytes ?? null,
      memoryLimitBytes: known.memory_limit_bytes ?? null,
      cores: known.cores ?? null,
      gpus: known.gpus ?? [],
    };
  const exitCode = state.launcher_exit_code ?? null;
  const phase = exitCode === null || row.phase === "Cancelled" ? row.phase : exitCode === 0 ? "Succeeded" : "Failed";
  return { phase, node: "", reason: "", exitCode, restarts: 0, memoryBytes: null, memoryLimitBytes: null, cores: null, gpus: [] };
}
