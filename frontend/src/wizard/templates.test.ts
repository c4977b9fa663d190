import { expect, it } from "vitest";
import type { Template } from "../api/client";
import { startersFirst, templatePath } from "./templates";

const template = (name: string, blocker = ""): Template => ({ name, origin: "library", description: "", yaml: "", blocker });

it("offers what runs here first", () => {
  const names = startersFirst([template("horovod", "no GPU"), template("zeta"), template("mpi4py"), template("deepspeed", "no GPU"), template("hello")]);
  expect(names.map(({ name }) => name)).toEqual(["hello", "mpi4py", "zeta", "deepspeed", "horovod"]);
});

it("leads to the review of a template, of its project where one is chosen", () => {
  expect(templatePath("a b")).toBe("/create?template=a%20b&step=review");
  expect(templatePath("bert", "team")).toBe("/create?template=bert&namespace=team&step=review");
});
