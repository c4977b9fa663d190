import { expect, it } from "vitest";
import { changesOfPatch, shownPath, shownValue } from "./changes";

it("shows a patch as changes of fields", () => {
  expect(changesOfPatch({ resources: { memory: "128Mi", cpu: "1" } }, { resources: { memory: "320Mi" } })).toEqual([
    { path: "resources.memory", was: '"128Mi"', is: '"320Mi"' },
  ]);
  expect(changesOfPatch({}, { env: { A: "1" } })).toEqual([{ path: "env.A", was: "–", is: '"1"' }]);
});

it("shows values as people read them", () => {
  expect(shownValue('"320Mi"')).toBe("320 MiB");
  expect(shownValue('["python","train.py"]')).toBe("python train.py");
  expect(shownValue("4")).toBe("4");
  expect(shownValue("–")).toBe("–");
});

it("names fields as the form does", () => {
  expect(shownPath("resources.memory")).toBe("Memory per worker");
  expect(shownPath("env.LR")).toBe("Environment variables: LR");
});
