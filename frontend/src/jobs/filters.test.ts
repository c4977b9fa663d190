import { describe, expect, it } from "vitest";
import { changeFilters, clearFilters, isFiltered, listQuery, readFilters, toggled } from "./filters";

const params = (text: string): URLSearchParams => new URLSearchParams(text);

describe("filters in the address", () => {
  it("become the question to the server", () => {
    const filters = readFilters(params("text=bert&status=Failed&status=Running&owner=ann&days=7&sort=name"));
    expect(listQuery(filters, "team-a", "utc", 1_000_030)).toEqual({
      sort: "name",
      limit: 50,
      namespace: "team-a",
      text: "bert",
      status: ["Failed", "Running"],
      owner: ["ann"],
      since: 1_000_020 - 7 * 86400,
    });
  });

  it("mean whole days of the chosen zone", () => {
    const query = listQuery(readFilters(params("days=custom&from=2026-11-16&to=2026-11-17")), "", "utc", 0);
    expect([query.since, query.until]).toEqual([Date.UTC(2026, 10, 16) / 1000, Date.UTC(2026, 10, 18) / 1000]);
    expect(listQuery(readFilters(params("days=custom")), "", "utc", 0)).toEqual({ sort: "-created", limit: 50 });
  });

  it("begin at the first page when they change", () => {
    const query = params("text=a&after=cursor&page=3&namespace=team");
    changeFilters(query, { status: ["Failed", "Queued"], text: "" });
    expect(query.toString()).toBe("namespace=team&status=Failed&status=Queued");
    changeFilters(query, { after: "next", page: 2 });
    expect(readFilters(query)).toMatchObject({ after: "next", page: 2, status: ["Failed", "Queued"] });
  });

  it("are cleared without the project and the order", () => {
    const query = params("text=a&days=7&namespace=team&sort=name&page=2&after=x");
    expect(isFiltered(query)).toBe(true);
    clearFilters(query);
    expect(query.toString()).toBe("namespace=team&sort=name");
    expect(isFiltered(query)).toBe(false);
  });

  it("toggle a value", () => {
    expect(toggled(["a"], "b")).toEqual(["a", "b"]);
    expect(toggled(["a", "b"], "a")).toEqual(["b"]);
  });
});
