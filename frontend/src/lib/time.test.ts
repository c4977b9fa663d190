import { describe, expect, it } from "vitest";
import { clock, clockSeconds, dateTime, dateTimeZone, dayRange, zoneName } from "./time";

// vitest.config.ts sets TZ=America/New_York: a machine in UTC would hide a mistake
const MOMENT = Date.UTC(2026, 10, 17, 18, 13, 31, 42);

describe("one clock", () => {
  it("shows the browser's zone", () => {
    expect(clock(MOMENT, "local")).toBe("13:13:31.042");
    expect(clockSeconds(MOMENT, "local")).toBe("13:13:31");
    expect(dateTime(MOMENT / 1000, "local")).toBe("Nov 17, 2026, 13:13:31");
    expect(dateTimeZone(MOMENT / 1000, "local")).toBe("Nov 17, 2026, 13:13:31 EST");
    expect(zoneName("local")).toBe("America/New_York");
  });

  it("shows UTC where that was chosen", () => {
    expect(clock(MOMENT, "utc")).toBe("18:13:31.042");
    expect(dateTimeZone(MOMENT / 1000, "utc")).toBe("Nov 17, 2026, 18:13:31 UTC");
    expect(zoneName("utc")).toBe("UTC");
  });

  it("begins a day at midnight of the zone", () => {
    expect(dayRange("2026-11-17", "utc")).toEqual([Date.UTC(2026, 10, 17) / 1000, Date.UTC(2026, 10, 18) / 1000]);
    expect(dayRange("2026-11-17", "local")[0]).toBe(Date.UTC(2026, 10, 17, 5) / 1000);
  });

  it("knows that the day when the clocks change is longer", () => {
    const [begin, end] = dayRange("2026-11-01", "local");
    expect(end - begin).toBe(25 * 3600);
  });
});
