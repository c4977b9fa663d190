import { expect, it } from "vitest";
import { configurationGroups } from "./configuration";

it("shows what was set and the usual defaults under the form's labels", () => {
  const groups = configurationGroups({ name: "bert", command: ["python", "train.py"], resources: { memory: "2Gi" }, env: { LR: "0.1", SEED: "7" } }, true);
  const entries = new Map(groups.flatMap(({ entries }) => entries.map((entry) => [entry.label, entry])));
  expect(entries.get("Command")).toMatchObject({ value: "python train.py", isDefault: false });
  expect(entries.get("Memory per worker")).toMatchObject({ value: "2 GiB", isDefault: false });
  expect(entries.get("Environment variables")).toMatchObject({ value: "LR=0.1\nSEED=7" });
  expect(entries.get("Workers")).toMatchObject({ value: "4", isDefault: true });
  expect(entries.has("Retries")).toBe(false);
});

it("shows files by their length", () => {
  const groups = configurationGroups({ code: { files: { "train.py": "import os\nprint(1)\n", note: "short" } } }, true);
  expect(groups.flatMap(({ entries }) => entries).find(({ label }) => label === "Inline files")?.value).toBe("train.py (2 lines)\nnote=short");
});

it("shows what was set in the options", () => {
  const groups = configurationGroups({ retry: { limit: 2 }, volumes: [{ kind: "claim", source: "data", mount: "/data" }] }, false);
  const entries = new Map(groups.flatMap(({ entries }) => entries.map((entry) => [entry.label, entry.value])));
  expect(entries.get("Retries")).toBe("2");
  expect(entries.get("Volumes and data connections")).toBe("kind=claim, source=data, mount=/data");
});
