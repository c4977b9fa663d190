import { describe, expect, it } from "vitest";
import type { LogRow } from "../api/client";
import { downloadQuery, hitIndex, hitsIn, isEarlier, lineId, lineIndex, linesBefore, logQuery, patternOf, readLogFilters, regexOf } from "./logQuery";

const read = (text: string) => readLogFilters(new URLSearchParams(text));
const here = { uid: "u1", isFinal: false, line: "" };
const lines = (...texts: string[]): LogRow[] => texts.map((text, index) => ({ text, at: String(1000 + index), time: index }) as LogRow);

describe("the question to the server", () => {
  it("follows a job that runs, and only that", () => {
    expect(logQuery(read(""), here)).toBe("tail=500&tidy=true&follow=true&uid=u1");
    expect(logQuery(read(""), { ...here, isFinal: true, uid: "team/bert" })).toBe("tail=500&tidy=true");
  });

  it("has all filters", () => {
    const query = new URLSearchParams(logQuery(read("role=launcher&role=worker&ranks=0-1,3&level=error&fold=true&since=5&until=9"), { ...here, attempt: 2 }));
    expect([query.getAll("roles"), query.getAll("ranks"), query.get("level"), query.get("attempt"), query.get("fold")]).toEqual([
      ["launcher", "worker"],
      ["0", "1", "3"],
      "error",
      "2",
      "true",
    ]);
    expect([query.get("since"), query.get("until"), query.get("follow")]).toEqual(["5", "9", null]);
  });

  it("hides other lines only when asked to", () => {
    expect(logQuery(read("find=a.b"), here)).not.toContain("regex");
    expect(new URLSearchParams(logQuery(read("find=a.b&only=true"), here)).get("regex")).toBe("(?i)a\\.b");
    expect(new URLSearchParams(logQuery(read("regex=/x%2B/"), here)).get("regex")).toBe("x+");
  });

  it("shows the lines around one that was linked", () => {
    const query = new URLSearchParams(logQuery(read(""), { ...here, line: "1700000000000000000" }));
    expect([query.get("since"), query.get("until")]).toEqual(["1699999940", "1700000060"]);
  });

  it("is everything for a download", () => {
    expect(downloadQuery("tail=500&tidy=true&follow=true&uid=u1&level=error")).toEqual({ tidy: "true", level: "error", format: "text" });
  });
});

describe("finding", () => {
  it("takes words as they are, and a regular expression between slashes", () => {
    expect(regexOf("a+b")).toBe("(?i)a\\+b");
    expect(hitsIn(lines("Loss 1", "step", "loss 2"), "loss")).toEqual([0, 2]);
    expect(hitsIn(lines("abc", "ab", "b"), "/^ab/")).toEqual([0, 1]);
    expect(patternOf("/(/")).toBeNull();
    expect(hitsIn(lines("a"), "")).toEqual([]);
  });

  it("names the hit that is shown, and keeps it while lines come", () => {
    const all = lines("hit", "x", "hit", "hit");
    const hits = hitsIn(all, "hit");
    const at = (text: string): LogRow => ({ text: "gone", at: text }) as LogRow;
    expect(hitIndex(hits, all, null)).toBe(0);
    expect(hitIndex(hits, all, all[2] ?? null)).toBe(1);
    expect(hitIndex(hits, all, at("1001"))).toBe(1);
    expect(hitIndex(hits, all, at("9999"))).toBe(2);
    expect(hitIndex([], all, at("1000"))).toBe(-1);
  });

  it("tells lines of the same nanosecond apart", () => {
    const [first, second, third] = lines("hit", "hit", "hit").map((line) => ({ ...line, at: "7" }));
    const burst = [first, second, third] as LogRow[];
    expect(hitIndex([0, 1, 2], burst, second ?? null)).toBe(1);
    expect(burst.map((line) => lineId(burst, line))).toEqual(["7", "7.1", "7.2"]);
    expect(["7", "7.2", "7.9", "8"].map((id) => lineIndex(burst, id))).toEqual([0, 2, 0, -1]);
  });

  it("puts older lines before those that are kept, also within a burst of the same nanosecond", () => {
    const all = lines("a", "b", "c", "d", "e").map((line, index) => ({ ...line, at: index < 1 ? "6" : "7" }));
    const kept = all.slice(3);
    expect(linesBefore(all.map((line) => ({ ...line })), kept).map(({ text }) => text)).toEqual(["a", "b", "c"]);
    expect(linesBefore(kept, kept)).toEqual([]);
  });

  it("compares nanoseconds as text", () => {
    expect(isEarlier("999", "1000")).toBe(true);
    expect(isEarlier("1001", "1000")).toBe(false);
  });
});
