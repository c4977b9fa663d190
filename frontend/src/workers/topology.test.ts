import { describe, expect, it } from "vitest";
import type { JobDetail, JobState } from "../api/client";
import { launcherOf } from "./launcher";
import { firstCause, hasGroups, isFirstCause, nodeOf, nodesOf, placeName, placesOf, rankCells, rankExits, rankSpan, workerGroups, workerReason } from "./topology";

const detail = (state: Partial<JobState>, phase = "Failed"): JobDetail =>
  ({
    row: { phase },
    state: {
      workers: [
        { index: 1, name: "w-1", phase: "Cancelled", node: "b" },
        { index: 0, name: "w-0", phase: "Failed", node: "", message: "" },
      ],
      ranks: [
        { rank: 0, worker: 0, node: "a", exit_code: 137, followed: true },
        { rank: 1, worker: 0, node: "a", exit_code: 143, followed: true },
        { rank: 2, worker: 1, node: "b", exit_code: 143, followed: true },
      ],
      ...state,
    },
  }) as unknown as JobDetail;

describe("the tree of a job", () => {
  it("has nodes also where only ranks know them", () => {
    const job = detail({});
    expect(workerGroups(job, "node").map(({ title, workers }) => [title, workers.map((one) => one.index)])).toEqual([
      ["a", [0]],
      ["b", [1]],
    ]);
    expect(workerGroups(job, "status").map(({ title }) => title)).toEqual(["Failed", "Cancelled"]);
    expect(nodeOf({ index: 9, name: "w", phase: "Pending" }, [])).toBe("");
  });

  it("has the groups of a job's workers, where it has some", () => {
    const workers = [
      { index: 0, name: "w-0", phase: "Running" },
      { index: 1, name: "w-1", phase: "Running", group: "cpu" },
      { index: 2, name: "w-2", phase: "Running", group: "cpu" },
    ] as JobState["workers"];
    const job = detail({ workers: workers ?? [] });
    expect(workerGroups(job, "group").map(({ title, workers: some }) => [title, some.map((one) => one.index)])).toEqual([
      ["No group", [0]],
      ["Group cpu", [1, 2]],
    ]);
    expect([hasGroups(job), hasGroups(detail({}))]).toEqual([true, false]);
  });

  it("counts the ranks of a worker", () => {
    expect(rankSpan(detail({}), 0)).toBe("ranks 0-1");
    expect(rankSpan(detail({}), 1)).toBe("rank 2");
    expect(rankSpan(detail({}), 7)).toBe("");
  });
});

describe("the worker that a failure began with", () => {
  const job = detail({ findings: [{ code: "MEMORY_LIMIT", message: "Worker 0 ran out of memory", worker: 0 }] as JobState["findings"] });

  it("did not stop because of another", () => {
    expect(rankExits(job, 0).map(({ text }) => text)).toEqual(["0 (exit 137)", "1 (exit 143)"]);
    expect(rankExits(job, 1).map(({ text }) => text)).toEqual(["2 (exit 143, stopped by another rank)"]);
  });

  it("stopped the others also where their exit codes are unknown", () => {
    const silent = detail({ findings: job.state.findings ?? [], ranks: [{ rank: 2, worker: 1, node: "b" }] as NonNullable<JobState["ranks"]> });
    expect(rankExits(silent, 1).map(({ text }) => text)).toEqual(["2 (stopped by another rank)"]);
  });

  it("says the cause", () => {
    const [worker] = job.state.workers?.filter((one) => one.index === 0) ?? [];
    expect(worker && workerReason(job, worker)).toBe("Worker 0 ran out of memory");
  });

  it("is one rank where the failure names the rank", () => {
    const named = detail({ findings: [{ code: "RANK_EXIT", message: "Rank 1", worker: 0, rank: 1 }] as JobState["findings"] });
    expect(rankExits(named, 0).map(({ text }) => text)).toEqual(["0 (exit 137, stopped by another rank)", "1 (exit 143)"]);
  });
});

describe("the launcher", () => {
  it("is known by its exit code where no more is told", () => {
    expect(launcherOf(detail({ launcher_exit_code: 137 }))).toMatchObject({ phase: "Failed", exitCode: 137 });
    expect(launcherOf(detail({ launcher_exit_code: 143 }, "Cancelled")).phase).toBe("Cancelled");
    expect(launcherOf(detail({}, "Running"))).toMatchObject({ phase: "Running", exitCode: null });
  });

  it("is shown as it is told", () => {
    const job = detail({ launcher: { phase: "Starting", node: "a", restarts: 1, exit_code: null } } as unknown as Partial<JobState>);
    expect(launcherOf(job)).toMatchObject({ phase: "Initializing", node: "a", restarts: 1 });
  });
});

describe("the picture of a job", () => {
  it("has nodes in their racks and zones, those of unknown places last", () => {
    const groups = workerGroups(detail({}), "node");
    const known = placesOf(groups, [
      { name: "b", zone: "eu-1a", rack: "r7" },
      { name: "other", zone: "eu-1b" },
    ]);
    expect(known.map((place) => [placeName(place), place.groups.map(({ title }) => title)])).toEqual([
      ["Zone eu-1a · Rack r7", ["b"]],
      ["", ["a"]],
    ]);
    expect(placesOf(groups, []).map(placeName)).toEqual([""]);
    expect(nodesOf(detail({}))).toEqual(["a", "b"]);
  });

  it("shows how each rank ended, its GPU, and where the failure began", () => {
    const job = detail({
      findings: [{ code: "RANK_EXIT", message: "Rank 1", worker: 0, rank: 1 }] as JobState["findings"],
      ranks: [
        { rank: 0, worker: 0, exit_code: 143, followed: true, gpus: ["GPU-5f1c"] },
        { rank: 1, worker: 0, exit_code: 1, gpus: ["3"] },
        { rank: 2, worker: 0, exit_code: 0 },
        { rank: 3, worker: 0, exit_code: 9 },
        { rank: 4, worker: 0 },
      ] as JobState["ranks"],
    });
    const worker = { index: 0, name: "w-0", phase: "Failed", gpus: ["GPU-77aa", "GPU-5f1c"] } as const;
    expect(rankCells(job, { ...worker, gpus: [...worker.gpus] }).map(({ rank, phase, gpu, isFirst }) => [rank, phase, gpu, isFirst])).toEqual([
      [0, "Cancelled", "1", false],
      [1, "Failed", "3", true],
      [2, "Succeeded", "", false],
      [3, "Failed", "", false],
      [4, "Cancelled", "", false],
    ]);
    expect(rankCells(job, { ...worker, gpus: [] })[1]?.words).toBe("Rank 1 · Failed · exit code 1 · GPU 3");
    expect([isFirstCause(job, 0), isFirstCause(job, 1)]).toEqual([true, false]);
    expect(firstCause(job)).toEqual({ worker: 0, rank: 1, node: "" });
    expect(firstCause(detail({}, "Succeeded"))).toBe(null);
  });

  it("names the rank of a worker that has only one", () => {
    const findings = [{ code: "MEMORY_LIMIT", message: "Worker 1", worker: 1 }] as JobState["findings"];
    expect(firstCause(detail({ findings }))).toEqual({ worker: 1, rank: 2, node: "b" });
    expect(firstCause(detail({ findings: [{ code: "MEMORY_LIMIT", message: "Worker 0", worker: 0 }] as JobState["findings"] }))?.rank).toBe(null);
  });

  it("takes a warning of a running job for no failure", () => {
    const running = detail({ findings: [{ code: "RANK_IDLE", message: "Rank 2 is idle", worker: 1, rank: 2, severity: "warning" }] as JobState["findings"], ranks: [{ rank: 2, worker: 1 }] as JobState["ranks"] }, "Running");
    expect(rankCells(running, { index: 1, name: "w-1", phase: "Running" }).map(({ phase, isFirst }) => [phase, isFirst])).toEqual([["Running", false]]);
  });
});
