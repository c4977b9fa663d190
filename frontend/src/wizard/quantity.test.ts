import { expect, it } from "vitest";
import { coresOf, joinMemory, splitMemory } from "./quantity";

it("splits memory into number and unit", () => {
  expect(splitMemory("1.5Gi")).toEqual({ amount: "1.5", unit: "Gi" });
  expect(splitMemory("")).toEqual({ amount: "", unit: "Gi" });
  expect(splitMemory("1000000")).toBeNull();
  expect(splitMemory("lots")).toBeNull();
  expect(joinMemory("2", "Gi")).toBe("2Gi");
  expect(joinMemory(" ", "Gi")).toBe("");
});

it("shows cores as numbers", () => expect([coresOf("500m"), coresOf("2"), coresOf("x")]).toEqual(["0.5", "2", "x"]));
