import { expect, it } from "vitest";
import { toCsv } from "./csv";

it("quotes cells and lets a spreadsheet run nothing", () => {
  expect(toCsv([["Name", 'with "quotes"'], ["=1+1", "a,b"]])).toBe('"Name","with ""quotes"""\r\n"\'=1+1","a,b"');
});
