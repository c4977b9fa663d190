import { expect, it } from "vitest";
import { arrangedFields } from "./fields";
import { reviewSections } from "./review";

const fields = arrangedFields(false, "default");

it("lists a job step by step", () => {
  const job = { name: "bert", command: ["sh", "-c", "echo a b"], workers: 4, slots: 2, resources: { gpu: 2, memory: "64Gi" }, env: { LR: "0.1" }, retry: { limit: 3 } };
  const [workload, resources, options] = reviewSections(job, fields);
  expect(workload?.entries).toEqual([
    { label: "Name", value: "bert" },
    { label: "Project", value: "default" },
    { label: "Command", value: "sh -c 'echo a b'" },
    { label: "Environment variables", value: "LR=0.1" },
  ]);
  expect(resources?.entries).toEqual([{ label: "Workers", value: "4 × (2 GPUs, 1 CPU, 64 GiB) · 8 ranks" }]);
  expect(options?.entries).toEqual([{ label: "Retries", value: "3" }]);
});

it("says that there is no command yet", () => {
  expect(reviewSections({ name: "a" }, fields)[0]?.entries).toContainEqual({ label: "Command", value: "–" });
  expect(reviewSections({ name: "a", script: "run.sh" }, fields)[0]?.entries.map(({ label }) => label)).not.toContain("Command");
});

it("shows the workers of each group", () => {
  const job = { name: "a", workers: 6, resources: { gpu: 1 }, groups: [{ name: "cpu", workers: 2, slots: 4, resources: { cpu: "4" } }] };
  const entries = reviewSections(job, fields).flatMap((section) => section.entries);
  expect(entries).toContainEqual({ label: "Workers", value: "4 × (1 GPU, 1 CPU, 1 GiB) + 2 × cpu (4 CPU, 1 GiB) · 12 ranks" });
});
