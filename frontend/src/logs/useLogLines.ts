/** The lines of a log as they come: a bounded buffer, updated once a frame, counted as they pass. */
import { useCallback, useEffect, useRef, useState } from "react";
import { problemOf, streamLogLines, type JobRow, type LogRow, type Problem } from "../api/client";
import { COUNT_MS, type Count } from "./density";
import { FIRST_LINES, linesBefore, isSerious, MORE_LINES } from "./logQuery";

const MOST_KEPT = 50_000;

export interface LogLines {
  readonly lines: readonly LogRow[];
  /** Lines, and warnings and errors among them, by tenth of a second. */
  readonly counts: ReadonlyMap<number, Count>;
  /** How many lines went out of the buffer. */
  readonly dropped: number;
  readonly problem: Problem | null;
  readonly state: "loading" | "live" | "ended";
  readonly older: "maybe" | "none" | "loading";
}

const EMPTY: LogLines = { lines: [], counts: new Map(), dropped: 0, problem: null, state: "loading", older: "maybe" };

function counted(before: ReadonlyMap<number, Count>, added: readonly LogRow[]): ReadonlyMap<number, Count> {
  const counts = new Map(before);
  for (const line of added) {
    const moment = Math.floor(line.time / COUNT_MS);
    const count = counts.get(moment) ?? { all: 0, serious: 0, errors: 0 };
    const serious = Number(isSerious(line));
    counts.set(moment, { all: count.all + 1, serious: count.serious + serious, errors: count.errors + (line.level === "warning" ? 0 : serious) });
  }
  return counts;
}

async function fetched(path: string): Promise<LogRow[]> {
  const found: LogRow[] = [];
  await streamLogLines(path, new AbortController().signal, (batch) => {
    for (const line of batch.lines ?? []) found.push(line);
  });
  return found;
}

export function useLogLines(row: JobRow, query: string): LogLines & { loadOlder: () => Promise<number> } {
  const { namespace, name, attempt } = row;
  const base = `/api/v1/trainjobs/${namespace}/${name}/logs`;
  const [state, setState] = useState<LogLines>(EMPTY);
  const most = useRef(MOST_KEPT);
  useEffect(() => {
    const control = new AbortController();
    let waiting: LogRow[] = [];
    let frame = 0;
    most.current = MOST_KEPT;
    setState(EMPTY);
    const flush = (): void => {
      frame = 0;
      const added = waiting;
      waiting = [];
      setState((before) => {
        const all = before.lines.concat(added);
        const extra = Math.max(0, all.length - most.current);
        const older = before.state === "loading" && added.length < FIRST_LINES ? before.older : "maybe";
        return { ...before, state: "live", older, lines: extra ? all.slice(extra) : all, counts: counted(before.counts, added), dropped: before.dropped + extra };
      });
    };
    streamLogLines(`${base}?${query}`, control.signal, (batch) => {
      for (const line of batch.lines ?? []) waiting.push(line);
      if (batch.problem) setState((before) => ({ ...before, problem: batch.problem ?? null }));
      if (frame) return;
      if (waiting.length) frame = window.requestAnimationFrame(flush);
      else setState((before) => (before.state === "loading" ? { ...before, state: "live" } : before));
    })
      .then(() => {
        if (frame) {
          window.cancelAnimationFrame(frame);
          flush();
        }
        setState((before) => ({ ...before, state: "ended" }));
      })
      .catch((error: unknown) => {
        if (!control.signal.aborted) setState((before) => ({ ...before, state: "ended", problem: problemOf(error) }));
      });
    return () => {
      control.abort();
      window.cancelAnimationFrame(frame);
    };
  }, [base, attempt, query]);

  const { lines, dropped } = state;
  const first = lines[0];
  const loading = useRef(false);
  /** Fetch the lines before the first one; return how many came. */
  const loadOlder = useCallback(async (): Promise<number> => {
    if (!first || loading.current) return 0;
    loading.current = true;
    const more = new URLSearchParams(query);
    more.delete("follow");
    more.set("tail", String(MORE_LINES));
    // the newest lines are read from the ends of the files; what is before a moment has to be searched for
    if (dropped || lines.length > FIRST_LINES * 2) more.set("until", String(first.time / 1000 + 0.001));
    setState((before) => ({ ...before, older: "loading" }));
    try {
      const found = await fetched(`${base}?${more.toString()}`);
      const added = linesBefore(found, lines);
      most.current += added.length;
      setState((before) => ({
        ...before,
        lines: added.concat(before.lines),
        counts: counted(before.counts, added),
        dropped: 0,
        older: found.length < MORE_LINES ? "none" : "maybe",
      }));
      return added.length;
    } catch (error) {
      setState((before) => ({ ...before, older: "maybe", problem: problemOf(error) }));
      return 0;
    } finally {
      loading.current = false;
    }
  }, [first, base, query, dropped, lines]);
  const complete = state.older === "maybe" && lines.length < FIRST_LINES && !dropped;
  return { ...state, older: complete ? "none" : state.older, loadOlder };
}
