import { expect, it } from "vitest";
import type { JobRow } from "../api/client";
import { fittingColumns, leastWidth, nameWidth, shownColumns } from "./columns";

const row = (change: Partial<JobRow>): JobRow => ({ namespace: "a", kind: "MPIJob", owner: "ann", queue: "", gpus: 0, ...change }) as JobRow;

it("shows a column only where rows differ in it", () => {
  expect([...shownColumns([row({}), row({})], "", {})]).toEqual(["progress", "workers", "created", "duration"]);
  const mixed = [row({ gpus: 4 }), row({ namespace: "b", owner: "ben", queue: "fast", kind: "TrainJob" })];
  expect(shownColumns(mixed, "", {}).size).toBe(9);
  expect(shownColumns(mixed, "a", {}).has("project")).toBe(false);
});

it("shows what the user has chosen", () => {
  const shown = shownColumns([row({})], "", { owner: true, duration: false });
  expect([shown.has("owner"), shown.has("duration")]).toEqual([true, false]);
});

it("drops what matters least where there is little room", () => {
  const mixed = shownColumns([row({ gpus: 4 }), row({ namespace: "b", owner: "ben", queue: "fast", kind: "TrainJob" })], "", {});
  const keys = (width: number, chosen = {}) => fittingColumns(mixed, chosen, width).map(({ key }) => key);
  expect(keys(200)).toHaveLength(9);
  expect(keys(67)).toEqual(["progress", "workers", "gpus", "created"]);
  expect(keys(40)).toEqual([]);
  expect(keys(40, { owner: true })).toEqual(["owner"]);
  expect(leastWidth(fittingColumns(mixed, {}, 67))).toBe(8 + 14 + 26);
});

it("leaves more for the reason than for the name", () => {
  const columns = fittingColumns(shownColumns([row({})], "", {}), {}, 67);
  const name = nameWidth(columns, 67);
  expect(name).toBeGreaterThanOrEqual(8);
  expect(67 - leastWidth(columns) + 14 - name).toBeGreaterThan(name);
  expect(nameWidth(columns, 30)).toBe(8);
  expect(nameWidth(columns, 400)).toBe(22);
});
