import { expect, it } from "vitest";
import { partsOf, workersText } from "./workers";

const groups = [
  { name: "cpu", workers: 2, slots: 4, resources: { cpu: "4", memory: "8Gi" } },
  { name: "wide", workers: 1 },
];

it("has one part without groups", () => {
  expect(workersText({ resources: { gpu: 2, memory: "64Gi" } }, 4)).toBe("4 × (2 GPUs, 1 CPU, 64 GiB)");
});

it("has the workers of no group first, and each group with what it sets", () => {
  const job = { slots: 2, resources: { gpu: 1 }, groups };
  expect(partsOf(job, 7).map(({ name, workers, slots }) => [name, workers, slots])).toEqual([
    ["", 4, 2],
    ["cpu", 2, 4],
    ["wide", 1, 2],
  ]);
  expect(workersText(job, 7)).toBe("4 × (1 GPU, 1 CPU, 1 GiB) + 2 × cpu (4 CPU, 8 GiB) + 1 × wide (1 GPU, 1 CPU, 1 GiB)");
});

it("has groups alone where all workers are in groups", () => {
  expect(workersText({ groups }, 3)).toBe("2 × cpu (4 CPU, 8 GiB) + 1 × wide (1 CPU, 1 GiB)");
});
