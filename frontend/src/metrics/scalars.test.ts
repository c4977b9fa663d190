import { expect, it } from "vitest";
import type { ScalarSeries } from "../api/client";
import { hasLine, MOST_LINES, runName, tagCharts } from "./scalars";

const series = (run: string, tag: string, steps: number[], values: (number | null)[]): ScalarSeries => ({
  run,
  tag,
  times: steps.map((_, index) => 100 + index),
  steps,
  values,
  count: steps.length,
  last: values.at(-1) ?? null,
  least: 0,
  most: 9,
});

it("draws the runs of a tag over the steps of all of them", () => {
  const [loss, rate] = tagCharts([series("train", "loss", [1, 2, 4], [3, 2, 1]), series("val", "loss", [2, 3], [5, 4]), series("train", "lr", [1], [0.1])]);
  expect(loss).toMatchObject({ tag: "loss", xName: "step", xs: [1, 2, 3, 4] });
  expect(loss?.lines.map(({ label, values }) => [label, values])).toEqual([
    ["train", [3, 2, null, 1]],
    ["val", [null, 5, 4, null]],
  ]);
  expect(rate && hasLine(rate)).toBe(false);
});

it("draws over time where steps do not rise", () => {
  expect(tagCharts([series(".", "loss", [0, 0], [3, 2])])[0]).toMatchObject({ xName: "time", xs: [100, 101] });
});

it("finds words in tags and runs", () => {
  const all = [series("train", "loss", [1], [1]), series("val", "loss", [1], [1]), series("val", "accuracy", [1], [1])];
  expect(tagCharts(all, " VAL ").map(({ tag, runs }) => [tag, runs.length])).toEqual([
    ["loss", 1],
    ["accuracy", 1],
  ]);
  expect(tagCharts(all, "nothing")).toEqual([]);
});

it("draws so many lines and no more", () => {
  const all = Array.from({ length: 40 }, (_, index) => series(`rank-${index}`, "loss", [1, 2], [1, 2]));
  expect(tagCharts(all)[0]?.lines).toHaveLength(MOST_LINES);
  expect(tagCharts(all)[0]?.runs).toHaveLength(40);
});

it("names the run of files without a directory", () => {
  expect([runName("."), runName(". (host.1)"), runName("logs/train")]).toEqual(["working directory", "working directory (host.1)", "logs/train"]);
});
