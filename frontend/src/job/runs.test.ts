import { expect, it } from "vitest";
import type { RunRow } from "../api/client";
import { runChoices } from "./runs";

const run = (uid: string, number: number, phases: string[]): RunRow =>
  ({ run: number, address: `bert@${number}`, deleted: null, row: { uid }, attempts: phases.map((phase, index) => ({ attempt: index + 1, phase })) }) as unknown as RunRow;

it("offers the attempts of one run by their number; the last is the job as it stands now", () => {
  const choices = runChoices([run("a", 1, ["Failed", "Running"])]);
  expect(choices.map(({ label }) => label)).toEqual(["Attempt 2 of 2", "Attempt 1 of 2"]);
  expect(choices.map(({ query }) => query)).toEqual([{}, { attempt: 1 }]);
});

it("offers earlier runs by their uid", () => {
  const choices = runChoices([run("b", 2, ["Succeeded"]), run("a", 1, ["Failed", "Failed"])]);
  expect(choices.map(({ label }) => label)).toEqual(["Run 2 of 2", "Run 1 of 2, Attempt 2 of 2", "Run 1 of 2, Attempt 1 of 2"]);
  expect(choices.map(({ query }) => query)).toEqual([{}, { uid: "a" }, { uid: "a", attempt: 1 }]);
  expect(choices[0]?.description).toBe("Succeeded, latest");
});
