/** What ranks did with MPI, as rows and cells. Pure. */
import type { MpiProfile } from "../api/client";

export interface RankShare {
  readonly rank: number;
  /** The share of the rank's time that it spent in MPI, from 0. */
  readonly share: number;
  readonly seconds: number;
}

/** The ranks with their share of time in MPI, the largest first. */
export const rankShares = ({ ranks = [] }: Pick<MpiProfile, "ranks">): readonly RankShare[] =>
  ranks
    .filter((rank) => !rank.spawned)
    .map(({ rank, seconds = 0, mpi_seconds: inMpi = 0 }) => ({ rank, share: seconds > 0 ? inMpi / seconds : 0, seconds: inMpi }))
    .sort((one, other) => other.share - one.share || one.rank - other.rank);

export interface Traffic {
  /** The ranks of rows and columns. */
  readonly ranks: readonly number[];
  readonly most: number;
  /** Bytes from the rank of a row to that of a column. */
  bytes: (row: number, column: number) => number | null;
}

/** Who sent how much to whom, as a square. */
export function trafficOf({ pairs = [], ranks = [] }: Pick<MpiProfile, "pairs" | "ranks">): Traffic {
  const named = [...new Set([...ranks.map(({ rank }) => rank), ...pairs.flatMap(({ sender, receiver }) => [sender, receiver])])].sort((one, other) => one - other);
  const sizes = new Map(pairs.map(({ sender, receiver, size = 0 }) => [`${sender}>${receiver}`, size]));
  return {
    ranks: named,
    most: Math.max(0, ...sizes.values()),
    bytes: (row, column) => sizes.get(`${named[row]}>${named[column]}`) ?? null,
  };
}
