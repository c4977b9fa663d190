import { expect, it } from "vitest";
import type { Fit } from "../api/client";
import { usefulAdvice, workersThatStartNow } from "./summary";

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
