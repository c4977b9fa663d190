/** Launcher, nodes, workers and ranks as a tree. Pure. */
import type { JobDetail, RankState, WorkerState } from "../api/client";
import { spans } from "../lib/format";
import { bySeverity } from "../lib/phases";

export type GroupBy = "node" | "status" | "none";

export interface WorkerGroup {
  readonly title: string;
  readonly workers: readonly WorkerState[];
}

const NO_NODE = "Not scheduled";

/** The node of a worker: its own, or that of its ranks where only they know it. */
export const nodeOf = (worker: WorkerState, ranks: readonly RankState[]): string =>
  worker.node || ranks.find((rank) => rank.worker === worker.index && rank.node)?.node || "";

/** The workers in groups, those of a node or a status together. */
export function workerGroups({ state }: JobDetail, by: GroupBy): readonly WorkerGroup[] {
  const ranks = state.ranks ?? [];
  const workers = [...(state.workers ?? [])].sort(by === "status" ? bySeverity : (one, other) => one.index - other.index);
  const groups = new Map<string, WorkerState[]>();
  for (const worker of workers) {
    const title = by === "node" ? nodeOf(worker, ranks) || NO_NODE : by === "status" ? worker.phase : "";
    groups.set(title, [...(groups.get(title) ?? []), worker]);
  }
  return [...groups].map(([title, some]) => ({ title, workers: some }));
}

export const ranksOf = ({ state }: JobDetail, worker: number): readonly RankState[] => (state.ranks ?? []).filter((rank) => rank.worker === worker);

/** The ranks of a worker in words: `rank 3`, `ranks 0-3`. */
export function rankSpan(detail: JobDetail, worker: number): string {
  const ranks = ranksOf(detail, worker).map((rank) => rank.rank);
  return ranks.length ? `${ranks.length === 1 ? "rank" : "ranks"} ${spans(ranks)}` : "";
}

/** What the exit codes of a worker's ranks say; the rank that a failure began with is no consequence of it. */
export function rankExits(detail: JobDetail, worker: number): readonly string[] {
  const [first] = detail.state.findings ?? [];
  const isFirst = (rank: RankState): boolean => rank.rank === first?.rank || (first?.rank === null || first?.rank === undefined ? rank.worker === first?.worker : false);
  // The exit code of a rank that was stopped early may never have been reported.
  const isCancelled = first !== undefined && detail.state.workers?.find((one) => one.index === worker)?.phase === "Cancelled";
  return ranksOf(detail, worker).map((rank) => {
    const code = rank.exit_code === null || rank.exit_code === undefined ? "" : `exit ${rank.exit_code}`;
    const consequence = (rank.followed || (!code && isCancelled)) && !isFirst(rank) ? "stopped by another rank" : "";
    const words = [code, consequence].filter(Boolean).join(", ");
    return words ? `${rank.rank} (${words})` : String(rank.rank);
  });
}

/** Why a worker stands where it stands: the finding that names it, else what its engine says. */
export function workerReason(detail: JobDetail, worker: WorkerState): string {
  const finding = (detail.state.findings ?? []).find((one) => one.worker === worker.index);
  return finding?.message ?? ([worker.message || worker.reason].filter(Boolean).join(": ") || "");
}
