import { expect, it } from "vitest";
import { sparklinePath } from "./sparkline";

it("draws from the lowest to the highest value", () => {
  expect(sparklinePath([0, 10, 5], 104, 24)).toBe("M2.0 22.0L52.0 2.0L102.0 12.0");
});

it("leaves gaps out, and draws nothing of one point", () => {
  expect(sparklinePath([1, null, 1], 104, 24)).toBe("M2.0 12.0L102.0 12.0");
  expect(sparklinePath([1, null], 104, 24)).toBe("");
  expect(sparklinePath([], 104, 24)).toBe("");
});
