import { describe, expect, it } from "vitest";
import type { Fit } from "../api/client";
import { values } from "./document";
import { usefulAdvice, withWorkers, workersThatStartNow } from "./summary";

const fit = (change: Partial<Fit>): Fit => ({ verdict: "waits", message: "", ...change });

it("offers fewer workers, never more", () => {
  expect(workersThatStartNow(fit({ starts_now: 2 }), 6)).toBe(2);
  expect(workersThatStartNow(fit({ starts_now: 11 }), 2)).toBeNull();
  expect(workersThatStartNow(fit({ starts_now: 0 }), 2)).toBeNull();
  expect(workersThatStartNow(fit({ starts_now: null }), 2)).toBeNull();
  expect(workersThatStartNow(fit({ verdict: "fits now", starts_now: 1 }), 2)).toBeNull();
});

it("offers fewer workers only where the queue lets them pass", () => {
  expect(workersThatStartNow(fit({ starts_now: 2, ahead_jobs: 1 }), 6)).toBeNull();
  expect(workersThatStartNow(fit({ verdict: "can never fit", starts_now: 2 }), 6)).toBe(2);
});

it("offers no change that the job has already", () => {
  const advice = [
    { field: "resources.memory", now: "896Mi", value: "896Mi", reason: "" },
    { field: "resources.cpu", now: "4", value: "2", reason: "" },
  ];
  expect(usefulAdvice({ program: "p", runs: 1, advice }).map(({ field }) => field)).toEqual(["resources.cpu"]);
});

describe("another number of workers", () => {
  const groups = [
    { name: "a", workers: 2 },
    { name: "b", workers: 3 },
  ];

  it("is that of the workers of no group", () => {
    expect(withWorkers("workers: 8\n", { workers: 8, groups }, 6)).toBe("workers: 6\n");
    expect(withWorkers("", {}, 2)).toBe("workers: 2\n");
  });

  it("changes the last group where all workers are in groups", () => {
    expect(values(withWorkers("workers: 5\n", { workers: 5, groups }, 4))).toEqual({ workers: 4, groups: [groups[0], { name: "b", workers: 2 }] });
  });
});
