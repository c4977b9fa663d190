import { expect, it } from "vitest";
import { actionWords, resultOf, timeOf } from "./audit";

it("says what was done and how it ended", () => {
  expect(actionWords("cancel")).toBe("Stopped a job");
  expect(actionWords("levitate")).toBe("levitate");
  expect([200, 403, 409, undefined].map((code) => resultOf(code).text)).toEqual(["Success", "Denied", "Failed (409)", "Unknown"]);
  expect(timeOf("2026-11-17T00:00:01.500000Z")).toBe(Date.UTC(2026, 10, 17) / 1000 + 1.5);
});
