import { describe, expect, it } from "vitest";
import { join, quoted, split } from "./shell";

describe("a command line", () => {
  it.each([
    ["python train.py --note 'two words'", ["python", "train.py", "--note", "two words"]],
    ['sh -c "echo $HOME \\"x\\""', ["sh", "-c", 'echo $HOME "x"']],
    ["a\\ b c", ["a b", "c"]],
    ["", []],
    ["''", [""]],
  ])("%s is split as a shell splits it", (line, words) => expect(split(line)).toEqual(words));

  it.each(["hostname 'one", 'say "half', "trailing \\"])("%s is still open", (line) => expect(split(line)).toBeNull());

  it("is joined so that it splits again", () => {
    const words = ["sh", "-c", "echo 'it''s' $X", "", "plain", "two words", 'a"b'];
    expect(split(join(words))).toEqual(words);
    expect(quoted("it's fine")).toBe(`"it's fine"`);
  });
});
