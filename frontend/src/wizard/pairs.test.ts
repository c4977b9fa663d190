import { expect, it } from "vitest";
import { values } from "./document";
import { pairsIn, parsePairs, samePairs, withPairs } from "./pairs";

const job = (text: string) => values(text) ?? {};

it("reads and writes variables", () => {
  const text = withPairs("name: a # note\n", "env", [
    { key: "LR", value: "0.1" },
    { key: "", value: "begun" },
  ]);
  expect(text).toContain("# note");
  expect(pairsIn(job(text), "env")).toEqual([{ key: "LR", value: "0.1" }]);
  expect(withPairs(text, "env", [])).toBe("name: a # note\n");
});

it("reads and writes secrets as variable and source", () => {
  const text = withPairs("name: a\n", "secrets", [{ key: "TOKEN", value: "env:HOME" }]);
  expect(job(text)["secrets"]).toEqual([{ env: "TOKEN", source: "env:HOME" }]);
  expect(pairsIn(job(text), "secrets")).toEqual([{ key: "TOKEN", value: "env:HOME" }]);
});

it("takes lines of KEY=value", () => {
  expect(parsePairs("export LR=0.1\n# note\nURL=a=b\nnonsense\n=x")).toEqual([
    { key: "LR", value: "0.1" },
    { key: "URL", value: "a=b" },
  ]);
  expect(samePairs([{ key: "a", value: "1" }], [{ key: "a", value: "1" }])).toBe(true);
  expect(samePairs([{ key: "a", value: "1" }], [])).toBe(false);
});
