import { expect, it } from "vitest";
import type { JobRow } from "../api/client";
import { MOST_NOTICES, noticeOf, withNotices, type Notice } from "./notices";

const row = (change: Partial<JobRow>): JobRow =>
  ({ uid: "u", namespace: "team", name: "bert", phase: "Running", cause: "", why: "", attempt: 1, finished: null, ...change }) as JobRow;

it("tells of a job that ended while it was watched", () => {
  const ended = row({ phase: "Failed", finished: 200, why: "Worker 5 ran out of memory" });
  expect(noticeOf(row({}), ended, 100)).toMatchObject({ kind: "failed", name: "bert", time: 200, text: "Worker 5 ran out of memory" });
  expect(noticeOf(undefined, row({ phase: "Succeeded", finished: 200 }), 100)?.kind).toBe("succeeded");
});

it("says nothing of what was over before, nor twice", () => {
  const ended = row({ phase: "Failed", finished: 50 });
  expect(noticeOf(undefined, ended, 100)).toBeNull();
  expect(noticeOf(ended, ended, 10)).toBeNull();
  expect(noticeOf(row({}), row({ phase: "Cancelled", finished: 200 }), 100)).toBeNull();
});

it("tells of a job that stopped responding once", () => {
  const stuck = row({ cause: "ALL_IDLE" });
  expect(noticeOf(row({}), stuck, 0)?.kind).toBe("stuck");
  expect(noticeOf(stuck, stuck, 0)).toBeNull();
  expect(noticeOf(row({}), row({ cause: "MEMORY_NEAR_LIMIT" }), 0)).toBeNull();
});

it("keeps the newest, each once", () => {
  const notice = (id: string): Notice => ({ id, kind: "failed", namespace: "n", name: "j", time: 1, text: "", read: false });
  const many = Array.from({ length: MOST_NOTICES }, (_, index) => notice(String(index)));
  const next = withNotices(many, [notice("new"), notice("3")]);
  expect(next).toHaveLength(MOST_NOTICES);
  expect(next[0]?.id).toBe("new");
  expect(next.filter((one) => one.id === "3")).toHaveLength(1);
});
