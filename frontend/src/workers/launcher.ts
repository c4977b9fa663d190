/** The launcher as the page shows it: as the server tells it, or what its exit code and the job's phase mean. Pure. */
import type { JobDetail, Phase } from "../api/client";

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

/** What a server tells of a launcher that knows it as a part of its own. */
interface LauncherState {
  readonly phase: string;
  readonly node?: string;
  readonly reason?: string;
  readonly message?: string;
  readonly exit_code?: number | null;
  readonly restarts?: number;
  readonly cores?: number | null;
  readonly memory_bytes?: number | null;
  readonly memory_limit_bytes?: number | null;
  readonly gpus?: readonly string[];
}

/** A launcher's phases in the words of a worker's. */
const PHASES: Record<string, Phase> = {
  Pending: "Pending",
  Scheduled: "Pending",
  Starting: "Initializing",
  Ready: "Initializing",
  Running: "Running",
  Succeeded: "Succeeded",
  Failed: "Failed",
  Cancelled: "Cancelled",
};

export function launcherOf({ state, row }: JobDetail): Launcher {
  const told = (state as { launcher?: LauncherState | null }).launcher;
  if (told)
    return {
      phase: PHASES[told.phase] ?? row.phase,
      node: told.node ?? "",
      reason: [told.reason, told.message].filter(Boolean).join(": "),
      exitCode: told.exit_code ?? null,
      restarts: told.restarts ?? 0,
      memoryBytes: told.memory_bytes ?? null,
      memoryLimitBytes: told.memory_limit_bytes ?? null,
      cores: told.cores ?? null,
      gpus: told.gpus ?? [],
    };
  const exitCode = state.launcher_exit_code ?? null;
  const phase = exitCode === null || row.phase === "Cancelled" ? row.phase : exitCode === 0 ? "Succeeded" : "Failed";
  return { phase, node: "", reason: "", exitCode, restarts: 0, memoryBytes: null, memoryLimitBytes: null, cores: null, gpus: [] };
}
