import { expect, it } from "vitest";
import { densityOf } from "./density";

it("puts seconds into bars", () => {
  const counts = new Map([
    [100, { all: 2, serious: 0 }],
    [102, { all: 3, serious: 1 }],
  ]);
  expect(densityOf(counts)).toMatchObject({ first: 100, last: 102, most: 3, serious: 1 });
  expect(densityOf(counts)?.bars.map((bar) => bar.all)).toEqual([2, 0, 3]);
});

it("has at most so many bars, and none for one second", () => {
  const long = new Map([
    [0, { all: 1, serious: 0 }],
    [100_000, { all: 1, serious: 0 }],
  ]);
  expect(densityOf(long)?.bars.length).toBeLessThanOrEqual(120);
  expect(densityOf(new Map([[5, { all: 9, serious: 0 }]]))).toBeNull();
  expect(densityOf(new Map())).toBeNull();
});
