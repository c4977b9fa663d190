import { describe, expect, it } from "vitest";
import { differences, isManifest, isScript, lineOf, nextName, patched, read, values, write } from "./document";

const NOTED = "# who asked\nname: both # short\nworkers: 3\nresources: {cpu: 1, memory: 2Gi}\n";

describe("the text that form and editor share", () => {
  it("keeps comments and order when one value changes", () => {
    const text = write(NOTED, "workers", 4);
    expect(text).toBe("# who asked\nname: both # short\nworkers: 4\nresources: {cpu: 1, memory: 2Gi}\n");
    expect(write(text, "resources.memory", undefined)).toContain("resources: {cpu: 1}");
  });

  it("takes out what is empty", () => {
    expect(write("name: a\nenv: {LR: x}\n", "env.LR", undefined)).toBe("name: a\n");
    expect(write("name: a\n", "name", undefined)).toBe("");
  });

  it("makes the way to a value", () => {
    expect(values(write("", "retry.limit", 2))).toEqual({ retry: { limit: 2 } });
    expect(values(write("retry: 5\n", "retry.limit", 2))).toEqual({ retry: { limit: 2 } });
  });

  it("is no job file where it cannot be read, or is no mapping", () => {
    expect(values("a: [")).toBeNull();
    expect(values("- a\n")).toBeNull();
    expect(values("")).toEqual({});
  });

  it("lays a patch over the text", () => {
    expect(values(patched(NOTED, { resources: { memory: "4Gi" }, env: { A: "1" } }))).toMatchObject({ resources: { cpu: 1, memory: "4Gi" }, env: { A: "1" } });
  });

  it("says where a field stands", () => {
    expect(lineOf(NOTED, "workers")).toBe(3);
    expect(lineOf(NOTED, "resources.gpu")).toBe(4);
    expect(lineOf(NOTED, "env")).toBe(0);
  });
});

describe("jobs", () => {
  it("differ part by part", () => {
    expect(differences({ a: 1, b: { c: 2 } }, { a: 1, b: { c: 3 }, d: "x" })).toEqual([
      { path: "b.c", was: "2", is: "3" },
      { path: "d", was: "–", is: '"x"' },
    ]);
  });

  it("get the next name", () => {
    expect([nextName("bert"), nextName("bert-2"), nextName("bert-16-9")]).toEqual(["bert-2", "bert-3", "bert-16-10"]);
  });

  it("are told from manifests", () => {
    expect(isManifest("apiVersion: v1\nkind: Pod\n")).toBe(true);
    expect(isManifest(NOTED)).toBe(false);
    expect(read(values(NOTED), "resources.memory")).toBe("2Gi");
  });
});

it("knows scripts of other schedulers from job files that hold one", () => {
  expect(isScript("#!/bin/bash\n#SBATCH -N 3\nsrun ./model\n")).toBe(true);
  expect(isScript("#PBS -l nodes=2\nmpirun ./model")).toBe(true);
  expect(isScript("name: job\ncode:\n  files:\n    run.sh: |\n      #!/bin/sh\n      #SBATCH -N 3\n")).toBe(false);
  expect(isScript("name: [open")).toBe(false);
});
