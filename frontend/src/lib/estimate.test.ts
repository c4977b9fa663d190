import { expect, it } from "vitest";
import { basisText, startText } from "./estimate";

it("says when a job starts, with the range and the basis of the estimate", () => {
  const estimate = { seconds: 1500, span: [600, 2400], basis: "from 6 earlier runs" };
  expect(startText(estimate)).toBe("in about 25 min (10–40 min)");
  expect(basisText(estimate)).toBe("From 6 earlier runs");
});

it("says why there is no estimate", () => {
  expect(startText({ seconds: null, basis: "the jobs ahead have not run before" })).toBe("No estimate yet: the jobs ahead have not run before");
  expect(startText({ seconds: undefined })).toBe("No estimate yet");
  expect(basisText({ seconds: null, basis: "unknown" })).toBe("");
});
