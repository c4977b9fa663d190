import { describe, expect, it } from "vitest";
import { age, ago, bytes, cost, duration, money, mpiName, parseSpans, quantity, range, roughly, significant, spans } from "./format";

describe("durations", () => {
  it.each([
    [null, "–"],
    [0.04, "0.0s"],
    [9.94, "9.9s"],
    [9.96, "10s"],
    [59.4, "59s"],
    [61, "1m01s"],
    [3723, "1h02m"],
    [2 * 86400 + 3 * 3600, "2d03h"],
  ])("%s seconds are %s", (seconds, text) => expect(duration(seconds)).toBe(text));

  it.each([
    [0.4, "1 s"],
    [25, "25 s"],
    [115, "115 s"],
    [120, "2 min"],
    [40 * 60, "40 min"],
    [3 * 3600, "3 h"],
    [90 * 60, "90 min"],
    [3 * 86400, "3 days"],
  ])("about %s seconds are %s", (seconds, text) => expect(roughly(seconds)).toBe(text));

  it("says the unit of a range once", () => {
    expect(range(32 * 60, 55 * 60)).toBe("32–55 min");
    expect(range(40, 600)).toBe("40 s–10 min");
    expect(range(60, 60)).toBe("60 s");
  });

  it("says how long ago something was with one unit", () => {
    expect(ago(1000, 1003)).toBe("just now");
    expect(ago(1000, 1042)).toBe("42s ago");
    expect(ago(1000, 1000 + 5400)).toBe("90m ago");
    expect(ago(1000, 1000 + 7200)).toBe("2h ago");
    expect(ago(null, 5)).toBe("–");
    expect(age(3 * 86400)).toBe("3d");
  });
});

describe("amounts", () => {
  it.each([
    [undefined, "–"],
    [0, "0 B"],
    [1536, "1.5 KiB"],
    [128 * 2 ** 20, "128 MiB"],
    [3 * 2 ** 50, "3072 TiB"],
  ])("%s bytes are %s", (amount, text) => expect(bytes(amount)).toBe(text));

  it.each([
    ["512Mi", "512 MiB"],
    ["1.5Gi", "1.5 GiB"],
    ["500m", "0.5"],
    ["4", "4"],
    ["lots", "lots"],
  ])("the quantity %s is %s", (text, shown) => expect(quantity(text)).toBe(shown));

  it("keeps what is less than a cent", () => {
    expect(money(118.2, "EUR")).toBe("118.20 EUR");
    expect(money(0.7477, "EUR")).toBe("0.75 EUR");
    expect(money(0.0012, "EUR")).toBe("< 0.01 EUR");
    expect(cost(0.0012, "EUR")).toBe("< 0.01 EUR");
    expect(cost(118.2, "EUR")).toBe("≈ 118.20 EUR");
    expect(money(0, "EUR")).toBe("0.00 EUR");
    expect(money(3, "")).toBe("3.00");
  });

  it("shows a metric with the digits that matter", () => {
    expect(significant(0.190004)).toBe("0.19");
    expect(significant(0.000012345)).toBe("1.234e-5");
    expect(significant(2500000)).toBe("2.5e+6");
    expect(significant(null)).toBe("NaN");
  });
});

describe("spans of numbers", () => {
  it("are written and read", () => {
    expect(spans([5, 0, 1, 2, 2])).toBe("0-2,5");
    expect(parseSpans("0-2, 5")).toEqual([0, 1, 2, 5]);
  });

  it("leave out what is no number, and what is endless", () => {
    expect(parseSpans("a,3-,1-9999999")).toEqual([]);
    expect(parseSpans("")).toEqual([]);
  });
});

it("calls MPI libraries by their names", () => {
  expect(["mpich 5.0.2", "openmpi", "intel 2021.18", "own 1"].map(mpiName)).toEqual(["MPICH 5.0.2", "Open MPI", "Intel MPI 2021.18", "own 1"]);
});
