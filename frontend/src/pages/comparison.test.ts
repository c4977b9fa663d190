import { describe, expect, it } from "vitest";
import type { Comparison, Curves, JobAccount } from "../api/client";
import { bestOf, comparedRows, configurationRows, overlaid, type ComparedJob } from "./comparison";

const curves = (loss: number[], steps: (number | null)[] = loss.map((_, index) => index + 1)): Curves =>
  ({ step: 1, series: [{ name: "loss", rank: 0, times: loss.map((_, index) => 1000 + 10 * index), steps, values: loss, count: loss.length, last: loss.at(-1), least: 0, most: 9 }] }) as unknown as Curves;

const job = (name: string, seconds: number, loss: number[], cost: number | null = null): ComparedJob => ({
  column: { ref: { namespace: "n", name }, phase: "Succeeded", duration_seconds: seconds, result: "", account: { peak_bytes: 1024 } } as unknown as Comparison["jobs"][number],
  account: { cost, currency: "EUR", account: null, estimate: null } as JobAccount,
  curves: curves(loss),
});

describe("jobs side by side", () => {
  it("have their results as rows, with the best marked", () => {
    const rows = new Map(comparedRows([job("a", 60, [3, 1], 2), job("b", 90, [3, 0.5], 1)]).map((row) => [row.label, row]));
    expect(rows.get("Duration")).toEqual({ label: "Duration", values: ["1m00s", "1m30s"], best: 0 });
    expect(rows.get("Cost")).toEqual({ label: "Cost", values: ["2.00 EUR", "1.00 EUR"], best: 1 });
    expect(rows.get("Final loss")).toEqual({ label: "Final loss", values: ["1", "0.5"], best: 1 });
    expect(rows.has("Cause")).toBe(false);
  });

  it("have no best where all are alike or only one is known", () => {
    expect(bestOf([1, 1], true)).toBeUndefined();
    expect(bestOf([1, null], true)).toBeUndefined();
    expect(bestOf([1, 2, null], false)).toBe(1);
  });

  it("have no best among those that failed", () => {
    const quick = job("quick", 1, [3, 0.1], 0);
    const failed = { ...quick, column: { ...quick.column, phase: "Failed" } } as ComparedJob;
    const rows = new Map(comparedRows([job("a", 60, [3, 1], 2), failed, job("b", 90, [3, 2], 1)]).map((row) => [row.label, row.best]));
    expect([rows.get("Duration"), rows.get("Cost"), rows.get("Final loss")]).toEqual([0, 2, 0]);
  });

  it("show a command as words and fields by their label", () => {
    const comparison = { jobs: [], differences: [{ field: "command", values: [["python", "a.py"], ["python", "b.py"]] }, { field: "resources.memory", values: ["1Gi", null] }] } as unknown as Comparison;
    expect(configurationRows(comparison)).toEqual([
      { label: "Command", values: ["python a.py", "python b.py"] },
      { label: "Memory per worker", values: ["1 GiB", "–"] },
    ]);
  });
});

describe("curves over one another", () => {
  it("share their steps", () => {
    const [chart] = overlaid(["a", "b"], [curves([3, 2], [1, 3]), curves([4, 1], [1, 2])]);
    expect(chart).toMatchObject({ metric: "loss", xName: "step", xs: [1, 2, 3] });
    expect(chart?.series.map(({ label, values }) => [label, values])).toEqual([
      ["a", [3, null, 2]],
      ["b", [4, 1, null]],
    ]);
  });

  it("are drawn over the time since the beginning where steps cannot be", () => {
    const [chart] = overlaid(["a", "b"], [curves([3, 2], [1, 1]), curves([4, 1])]);
    expect(chart).toMatchObject({ xName: "second", xs: [0, 10] });
  });

  it("are of metrics that several jobs have", () => expect(overlaid(["a", "b"], [curves([3, 2]), null])).toEqual([]));

  it("are not drawn of what never changes", () => {
    const constant = curves([1, 1]);
    const flat = { ...constant, series: constant.series?.map((one) => ({ ...one, least: 1, most: 1 })) } as Curves;
    expect(overlaid(["a", "b"], [flat, flat])).toEqual([]);
  });
});
