import { expect, it } from "vitest";
import { densityOf } from "./density";

const NONE = { serious: 0, errors: 0 };

it("puts lines into bars, with the moments in seconds", () => {
  const counts = new Map([
    [1000, { all: 2, ...NONE }],
    [1020, { all: 3, serious: 2, errors: 1 }],
  ]);
  const density = densityOf(counts);
  expect(density).toMatchObject({ first: 100, last: 102.1, most: 3, serious: 2 });
  expect(density?.bars).toHaveLength(21);
  expect([density?.bars[0], density?.bars[20]]).toEqual([
    { all: 2, ...NONE },
    { all: 3, serious: 2, errors: 1 },
  ]);
});

it("has at most so many bars, and none for one second", () => {
  const long = new Map([
    [0, { all: 1, ...NONE }],
    [1_000_000, { all: 1, ...NONE }],
  ]);
  expect(densityOf(long)?.bars.length).toBeLessThanOrEqual(120);
  expect(densityOf(new Map([[5, { all: 9, ...NONE }], [14, { all: 1, ...NONE }]]))).toBeNull();
  expect(densityOf(new Map())).toBeNull();
});
