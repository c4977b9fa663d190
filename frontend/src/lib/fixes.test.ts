import { describe, expect, it } from "vitest";
import { actionOf, fixText, isApplicable } from "./fixes";

describe("the sentence of a fix", () => {
  it.each([
    [{ text: "let it run again: mpijob resume paused", command: "mpijob resume paused" }, "Let it run again"],
    [{ text: "read the rank's last lines: mpijob logs bert --rank 3 --tail 50", command: "mpijob logs bert --rank 3 --tail 50" }, "Read the rank's last lines"],
    [
      { text: "run it again (mpijob retry bert), and while it is silent see where each stands: mpijob stacks bert", command: "mpijob stacks bert" },
      "Run it again, and while it is silent see where each stands",
    ],
    [{ text: "make batches smaller" }, "Make batches smaller"],
    [{ text: "raise the memory of each worker to 320Mi" }, "Raise the memory of each worker to 320 MiB"],
  ])("has no command line in it", (fix, text) => expect(fixText(fix)).toBe(text));
});

describe("the command of a fix", () => {
  it.each([
    ["mpijob retry bert", { kind: "retry" }],
    ["mpijob stacks bert", { kind: "stacks" }],
    ["mpijob queue", { kind: "queue" }],
    ["mpijob top bert", { kind: "metrics" }],
    ["mpijob logs bert --rank 3 --tail 50", { kind: "logs", query: { ranks: "3" } }],
    ["mpijob logs bert --role launcher", { kind: "logs", query: { role: "launcher" } }],
    ["mpijob why other", { kind: "job", name: "other" }],
    ["mpijob doctor", { kind: "command", command: "mpijob doctor" }],
    ["", null],
  ])("%s is a control of the page", (command, action) => expect(actionOf(command, "bert")).toEqual(action));
});

it("can be applied where it changes the configuration", () => {
  expect(isApplicable({ patch: { resources: { memory: "1Gi" } } as never })).toBe(true);
  expect(isApplicable({ patch: {} })).toBe(false);
  expect(isApplicable({})).toBe(false);
});
