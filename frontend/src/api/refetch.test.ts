import { describe, expect, it } from "vitest";
import { refetchedOn } from "./refetch";

const key = ["job", "team", "train", "runs"];
const before = (queryKey: readonly unknown[]) => refetchedOn(key, "Failed").placeholderData("kept", { queryKey });

describe("an answer that is asked for again when the phase changes", () => {
  it("is kept until the next one is there", () => {
    expect(refetchedOn(key, "Failed").queryKey).toEqual([...key, "Failed"]);
    expect(before([...key, "Running"])).toBe("kept");
  });
  it("is not kept for another job, and is nothing at first", () => {
    expect(before(["job", "team", "other", "runs", "Running"])).toBeUndefined();
    expect(refetchedOn(key, "Failed").placeholderData(undefined, undefined)).toBeUndefined();
  });
});
