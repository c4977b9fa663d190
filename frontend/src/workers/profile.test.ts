import { expect, it } from "vitest";
import type { MpiProfile } from "../api/client";
import { rankShares, trafficOf } from "./profile";

const profile = {
  ranks: [
    { rank: 0, seconds: 10, mpi_seconds: 2 },
    { rank: 1, seconds: 10, mpi_seconds: 6 },
    { rank: 2, seconds: 0, mpi_seconds: 0 },
  ],
  pairs: [
    { sender: 0, receiver: 1, size: 4096 },
    { sender: 1, receiver: 0, size: 1024 },
  ],
} as unknown as MpiProfile;

it("puts the rank with the largest share of time in MPI first", () => {
  expect(rankShares(profile).map(({ rank, share }) => [rank, share])).toEqual([
    [1, 0.6],
    [0, 0.2],
    [2, 0],
  ]);
});

it("lays out who sent how much to whom as a square", () => {
  const traffic = trafficOf(profile);
  expect(traffic.ranks).toEqual([0, 1, 2]);
  expect(traffic.most).toBe(4096);
  expect([traffic.bytes(0, 1), traffic.bytes(1, 0), traffic.bytes(2, 0)]).toEqual([4096, 1024, null]);
});
