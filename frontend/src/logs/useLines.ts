/** The lines of a log as they come: a bounded buffer, drawn once a frame, counted by the second as they pass. */
import { useCallback, useEffect, useRef, useState } from "react";
import { problemOf, streamLogs, type JobRow, type LogRow, type Problem } from "../api/client";

const KEPT = 50_000;
export const TAIL = 10_000;

export interface Count {
  readonly all: number;
  readonly bad: number;
}

export interface Lines {
  readonly lines: readonly LogRow[];
  /** Lines and errors by second. */
  readonly counts: ReadonlyMap<number, Count>;
  /** How many lines went out of the buffer, or came into it, before the first. */
  readonly dropped: number;
  readonly problem: Problem | null;
  readonly ended: boolean;
  readonly older: "maybe" | "none" | "coming";
}

const NONE: Lines = { lines: [], counts: new Map(), dropped: 0, problem: null, ended: false, older: "maybe" };
export const isBad = (line: LogRow): boolean => line.level === "error" || line.level === "fatal" || line.level === "warning";

function counted(was: ReadonlyMap<number, Count>, fresh: readonly LogRow[]): ReadonlyMap<number, Count> {
  const made = new Map(was);
  for (const line of fresh) {
    const second = Math.floor(line.time / 1000);
    const old = made.get(second) ?? { all: 0, bad: 0 };
    made.set(second, { all: old.all + 1, bad: old.bad + Number(isBad(line)) });
  }
  return made;
}

export function useLines(row: JobRow, query: string): Lines & { showOlder: () => Promise<number> } {
  const { namespace, name, attempt, uid } = row;
  const base = `/api/v1/trainjobs/${namespace}/${name}/logs`;
  const [state, setState] = useState<Lines>(NONE);
  const most = useRef(KEPT);
  useEffect(() => {
    const control = new AbortController();
    let waiting: LogRow[] = [];
    let frame = 0;
    most.current = KEPT;
    setState(NONE);
    const flush = (): void => {
      frame = 0;
      const fresh = waiting;
      waiting = [];
      setState((was) => {
        const all = was.lines.concat(fresh);
        const extra = Math.max(0, all.length - most.current);
        return { ...was, lines: extra ? all.slice(extra) : all, counts: counted(was.counts, fresh), dropped: was.dropped + extra };
      });
    };
    streamLogs(`${base}?${query}`, control.signal, (batch) => {
      for (const line of batch.lines ?? []) waiting.push(line);
      if (batch.problem) setState((was) => ({ ...was, problem: batch.problem ?? null }));
      if (!frame && waiting.length) frame = window.requestAnimationFrame(flush);
    })
      .then(() => setState((was) => ({ ...was, ended: true })))
      .catch((error: unknown) => {
        if (!control.signal.aborted) setState((was) => ({ ...was, problem: problemOf(error) }));
      });
    return () => {
      control.abort();
      window.cancelAnimationFrame(frame);
    };
  }, [base, attempt, uid, query]);

  const first = state.lines[0];
  /** Fetch the lines before the first one; return how many came. */
  const showOlder = useCallback(async (): Promise<number> => {
    if (!first) return 0;
    const asked = new URLSearchParams(query);
    asked.delete("follow");
    asked.set("tail", String(TAIL));
    asked.set("until", String(first.time / 1000 + 0.001));
    const found: LogRow[] = [];
    setState((was) => ({ ...was, older: "coming" }));
    try {
      await streamLogs(`${base}?${asked.toString()}`, new AbortController().signal, (batch) => {
        for (const line of batch.lines ?? []) found.push(line);
      });
    } catch (error) {
      setState((was) => ({ ...was, older: "maybe", problem: problemOf(error) }));
      return 0;
    }
    const before = found.filter((line) => earlier(line, first));
    most.current += before.length;
    setState((was) => ({
      ...was,
      lines: before.concat(was.lines),
      counts: counted(was.counts, before),
      dropped: 0,
      older: found.length < TAIL ? "none" : "maybe",
    }));
    return before.length;
  }, [first, base, query]);
  return { ...state, older: state.lines.length < TAIL && state.older === "maybe" && !state.dropped ? "none" : state.older, showOlder };
}

/** Whether a line was said before another; the nanoseconds are too large for numbers. */
const earlier = (line: LogRow, other: LogRow): boolean =>
  line.at.length !== other.at.length ? line.at.length < other.at.length : line.at < other.at;
