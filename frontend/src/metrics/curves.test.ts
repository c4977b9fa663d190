import { expect, it } from "vitest";
import type { Series } from "../api/client";
import { axisOf, byImportance, isBetterLow, isCurve } from "./curves";

const series = (name: string, steps: (number | null)[], values: (number | null)[] = steps.map(() => 1)): Series =>
  ({ name, rank: 0, times: steps.map((_, index) => 100 + index), steps, values, count: steps.length, last: 1, least: 1, most: 1 }) as Series;

it("draws over steps that rise, else over time", () => {
  expect(axisOf(series("loss", [1, 2, 3]), true)).toEqual({ name: "step", xs: [1, 2, 3] });
  expect(axisOf(series("loss", [1, 2, 3]), false).name).toBe("epoch");
  expect(axisOf(series("loss", [1, 2, 1]), true)).toEqual({ name: "time", xs: [100, 101, 102] });
  expect(axisOf(series("loss", [1, null]), true).name).toBe("time");
});

it("shows loss and accuracy first, and what is only set last", () => {
  expect(byImportance(["lr", "throughput", "accuracy", "loss"].map((name) => series(name, [1]))).map((one) => one.name)).toEqual([
    "loss",
    "accuracy",
    "throughput",
    "lr",
  ]);
});

it("takes one value for a number and not for a curve", () => {
  expect(isCurve(series("loss", [1, 2], [3, null]))).toBe(false);
  expect(isCurve(series("loss", [1, 2], [3, 2]))).toBe(true);
  expect([isBetterLow("val_loss"), isBetterLow("accuracy")]).toEqual([true, false]);
});
