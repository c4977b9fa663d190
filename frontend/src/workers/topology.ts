/** Launcher, nodes, workers and ranks as a tree. Pure. */
import type { JobDetail, NodePlace, Phase, RankState, WorkerState } from "../api/client";
import { spans } from "../lib/format";
import { bySeverity } from "../lib/phases";

export type GroupBy = "node" | "group" | "status" | "none";

export interface WorkerGroup {
  readonly title: string;
  readonly workers: readonly WorkerState[];
}

const NO_NODE = "Not scheduled";
const NO_GROUP = "No group";

/** Whether the job has groups of workers. */
export const hasGroups = ({ state }: JobDetail): boolean => (state.workers ?? []).some(({ group }) => group);

/** The node of a worker: its own, or that of its ranks where only they know it. */
export const nodeOf = (worker: WorkerState, ranks: readonly RankState[]): string =>
  worker.node || ranks.find((rank) => rank.worker === worker.index && rank.node)?.node || "";

/** The nodes of a job, each once. */
export const nodesOf = ({ state }: JobDetail): readonly string[] =>
  [...new Set([...(state.workers ?? []), ...(state.ranks ?? [])].map(({ node }) => node ?? "").filter(Boolean))].sort();

/** The workers in groups, those of a node, a group of the job or a status together. */
export function workerGroups({ state }: JobDetail, by: GroupBy): readonly WorkerGroup[] {
  const ranks = state.ranks ?? [];
  const workers = [...(state.workers ?? [])].sort(by === "status" ? bySeverity : (one, other) => one.index - other.index);
  const groups = new Map<string, WorkerState[]>();
  for (const worker of workers) {
    const title = titleOf(worker, by, ranks);
    groups.set(title, [...(groups.get(title) ?? []), worker]);
  }
  return [...groups].map(([title, some]) => ({ title, workers: some }));
}

function titleOf(worker: WorkerState, by: GroupBy, ranks: readonly RankState[]): string {
  if (by === "node") return nodeOf(worker, ranks) || NO_NODE;
  if (by === "group") return worker.group ? `Group ${worker.group}` : NO_GROUP;
  return by === "status" ? worker.phase : "";
}

export const ranksOf = ({ state }: JobDetail, worker: number): readonly RankState[] => (state.ranks ?? []).filter((rank) => rank.worker === worker);

/** The ranks of a worker in words: `rank 3`, `ranks 0-3`. */
export function rankSpan(detail: JobDetail, worker: number): string {
  const ranks = ranksOf(detail, worker).map((rank) => rank.rank);
  return ranks.length ? `${ranks.length === 1 ? "rank" : "ranks"} ${spans(ranks)}` : "";
}

/** What the exit codes of a worker's ranks say; the rank that a failure began with is no consequence of it. */
export function rankExits(detail: JobDetail, worker: number): readonly { rank: number; text: string }[] {
  const [first] = detail.state.findings ?? [];
  const isFirst = (rank: RankState): boolean => rank.rank === first?.rank || (first?.rank === null || first?.rank === undefined ? rank.worker === first?.worker : false);
  // The exit code of a rank that was stopped early may never have been reported.
  const isCancelled = first !== undefined && detail.state.workers?.find((one) => one.index === worker)?.phase === "Cancelled";
  return ranksOf(detail, worker).map((rank) => {
    const code = rank.exit_code === null || rank.exit_code === undefined ? "" : `exit ${rank.exit_code}`;
    const consequence = (rank.followed || (!code && isCancelled)) && !isFirst(rank) ? "stopped by another rank" : "";
    const words = [code, consequence].filter(Boolean).join(", ");
    return { rank: rank.rank, text: words ? `${rank.rank} (${words})` : String(rank.rank) };
  });
}

/** Why a worker stands where it stands: the finding that names it, else what its engine says. */
export function workerReason(detail: JobDetail, worker: WorkerState): string {
  const finding = (detail.state.findings ?? []).find((one) => one.worker === worker.index);
  return finding?.message ?? ([worker.message || worker.reason].filter(Boolean).join(": ") || "");
}

/** Groups of one rack or zone, in the order of the picture; "" where nobody knows. */
export interface Place {
  readonly zone: string;
  readonly rack: string;
  readonly groups: readonly WorkerGroup[];
}

/** The nodes by zone and rack: one place without a name where neither is known. */
export function placesOf(groups: readonly WorkerGroup[], known: readonly NodePlace[]): readonly Place[] {
  const nodes = new Map(known.map((one) => [one.name, one]));
  const places = new Map<string, Place>();
  for (const group of groups) {
    const { zone = "", rack = "" } = nodes.get(group.title) ?? {};
    const key = JSON.stringify([zone, rack]);
    places.set(key, { zone, rack, groups: [...(places.get(key)?.groups ?? []), group] });
  }
  const unknownLast = (text: string): string => text || "\uffff";
  return [...places.values()].sort((one, other) => unknownLast(one.zone).localeCompare(unknownLast(other.zone)) || unknownLast(one.rack).localeCompare(unknownLast(other.rack)));
}

/** A place in words: `Zone a · Rack 3`. */
export const placeName = ({ zone, rack }: Place): string => [zone && `Zone ${zone}`, rack && `Rack ${rack}`].filter(Boolean).join(" · ");

/** One rank in the picture. */
export interface RankCell {
  readonly rank: number;
  readonly phase: Phase;
  /** The failure of the job began here. */
  readonly isFirst: boolean;
  /** Its GPU as short as it can be told: its number, or its place among those of the worker. */
  readonly gpu: string;
  readonly words: string;
}

const SHORT_GPU = 3;

/** The ranks of a worker, each with its own end and its GPU. */
export function rankCells(detail: JobDetail, worker: WorkerState): readonly RankCell[] {
  const first = firstCause(detail);
  const gpus = worker.gpus ?? [];
  return ranksOf(detail, worker.index).map((rank) => {
    const isFirst = first?.rank === rank.rank;
    const phase = rankPhase(rank, worker.phase, isFirst);
    const own = rank.gpus ?? [];
    const gpu = own.map((id) => (id.length <= SHORT_GPU ? id : String(Math.max(0, gpus.indexOf(id))))).join(",");
    const exit = typeof rank.exit_code === "number" ? `exit code ${rank.exit_code}` : "";
    return { rank: rank.rank, phase, isFirst, gpu, words: [`Rank ${rank.rank}`, phase, exit, own.length ? `GPU ${own.join(", ")}` : ""].filter(Boolean).join(" · ") };
  });
}

function rankPhase({ exit_code: code, followed }: RankState, worker: Phase, isFirst: boolean): Phase {
  if (isFirst) return "Failed";
  if (followed) return "Cancelled";
  if (typeof code === "number") return code === 0 ? "Succeeded" : "Failed";
  return worker === "Failed" ? "Cancelled" : worker;
}

/** Whether the failure of the job began at a worker. */
export const isFirstCause = ({ state, row }: JobDetail, worker: number): boolean => row.phase === "Failed" && state.findings?.[0]?.worker === worker;

/** The worker and rank at which the failure of the job began, with the node; null where nobody knows. */
export function firstCause(detail: JobDetail): { readonly worker: number; readonly rank: number | null; readonly node: string } | null {
  const [first] = detail.state.findings ?? [];
  const worker = (detail.state.workers ?? []).find((one) => one.index === first?.worker);
  if (!first || !worker || !isFirstCause(detail, worker.index)) return null;
  const [own, ...others] = ranksOf(detail, worker.index);
  return { worker: worker.index, rank: first.rank ?? (others.length ? null : (own?.rank ?? null)), node: nodeOf(worker, detail.state.ranks ?? []) };
}
