import { expect, it } from "vitest";
import { priceOf } from "./prices";

it("does not add different currencies", () => {
  expect(priceOf({ cost: 12, currency: "EUR" })).toBe("12.00 EUR");
  expect(priceOf({ cost: 0, costs: { USD: 3, EUR: 12 } })).toBe("12.00 EUR + 3.00 USD");
  expect(priceOf({})).toBe("0.00");
});
