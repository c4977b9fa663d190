import { Alert, Button, Checkbox, SearchInput, TextInput } from "@patternfly/react-core";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useMemo, useRef, useState } from "react";
import { useSearchParams } from "react-router-dom";
import { problemOf, streamLogs, type JobDetail, type LogRow, type Problem } from "../api/client";
import { Choice } from "../components/Choice";
import { useRested } from "../hooks";
import { clock, plural } from "../words";

const KEPT = 50_000;
const TAIL = 10_000;
const LINE_PX = 20;

/** `0-3,5` as numbers; what is no number is left out. */
function numbers(text: string): number[] {
  return text.split(",").flatMap((part) => {
    const [first = "", last = first] = part.trim().split("-");
    const [from, to] = [Number(first), Number(last)];
    if (!first || !Number.isInteger(from) || !Number.isInteger(to) || to - from > 1000) return [];
    return Array.from({ length: Math.max(0, to - from + 1) }, (_, at) => from + at);
  });
}

/** The merged lines: chosen by the server, kept in a bounded buffer, only those in sight are drawn. */
export function Logs({ detail }: { detail: JobDetail }) {
  const [params, setParams] = useSearchParams();
  const [ranks, setRanks] = useState(params.get("ranks") ?? "");
  const [regex, setRegex] = useState(params.get("regex") ?? "");
  const [find, setFind] = useState("");
  const [follow, setFollow] = useState(true);
  const workers = params.get("workers") ?? "";
  const role = params.get("role") ?? "";
  const level = params.get("level") ?? "";
  const fold = params.get("fold") === "true";
  const asked = useRested(JSON.stringify({ ranks, regex }), 300);
  const query = useMemo(() => {
    const wanted = JSON.parse(asked) as { ranks: string; regex: string };
    const made = new URLSearchParams({ follow: "true", tail: String(TAIL) });
    for (const rank of numbers(wanted.ranks)) made.append("ranks", String(rank));
    for (const worker of numbers(workers)) made.append("workers", String(worker));
    if (role) made.append("roles", role);
    if (wanted.regex) made.set("regex", wanted.regex);
    if (level) made.set("level", level);
    if (fold) made.set("fold", "true");
    made.set("tidy", "true");
    return made.toString();
  }, [asked, workers, role, level, fold]);
  useEffect(() => {
    const wanted = JSON.parse(asked) as { ranks: string; regex: string };
    setParams(
      (was) => {
        const next = new URLSearchParams(was);
        for (const [key, value] of Object.entries(wanted)) {
          if (value) next.set(key, value);
          else next.delete(key);
        }
        return next;
      },
      { replace: true },
    );
  }, [asked, setParams]);
  const { lines, dropped, problem, ended } = useLines(detail, query);
  const hits = useMemo(() => {
    const wanted = find.toLowerCase();
    return wanted ? lines.flatMap((line, at) => (line.text.toLowerCase().includes(wanted) ? [at] : [])) : [];
  }, [find, lines]);
  const [hit, setHit] = useState(0);

  const box = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({
    count: lines.length,
    getScrollElement: () => box.current,
    estimateSize: () => LINE_PX,
    overscan: 20,
  });
  useEffect(() => {
    if (follow && lines.length) virtual.scrollToIndex(lines.length - 1);
  }, [follow, lines, virtual]);
  const go = (step: number): void => {
    if (!hits.length) return;
    const next = (hit + step + hits.length) % hits.length;
    setHit(next);
    setFollow(false);
    virtual.scrollToIndex(hits[next] ?? 0, { align: "center" });
  };
  const choose = (key: string, value: string): void =>
    setParams((was) => {
      const next = new URLSearchParams(was);
      if (value) next.set(key, value);
      else next.delete(key);
      return next;
    });
  const base = `/api/v1/trainjobs/${detail.row.namespace}/${detail.row.name}/logs`;
  const download = new URLSearchParams(query);
  for (const key of ["follow", "tail"]) download.delete(key);
  download.set("format", "text");

  return (
    <div className="stack">
      <div className="filters" role="group" aria-label="Which lines">
        <Choice
          label="Who"
          value={role}
          options={[["", "Everybody"], ["launcher", "Launcher"], ["worker", "Workers"], ["rank", "Ranks"]]}
          onChange={(value) => choose("role", value)}
        />
        <Choice
          label="Level"
          value={level}
          options={[["", "Every level"], ["info", "Info and up"], ["warning", "Warnings and errors"], ["error", "Errors"]]}
          onChange={(value) => choose("level", value)}
        />
        <TextInput aria-label="Ranks, for example 0-3,5" placeholder="Ranks: 0-3,5" value={ranks} onChange={(_, value) => setRanks(value)} />
        <SearchInput
          aria-label="Show only lines that match this regular expression"
          placeholder="Filter (regex)"
          value={regex}
          onChange={(_, value) => setRegex(value)}
          onClear={() => setRegex("")}
        />
        <SearchInput
          aria-label="Find in the lines shown"
          placeholder="Find"
          value={find}
          onChange={(_, value) => {
            setFind(value);
            setHit(0);
          }}
          onClear={() => setFind("")}
          resultsCount={find ? `${hits.length ? hit + 1 : 0} / ${hits.length}` : undefined}
          onNextClick={() => go(1)}
          onPreviousClick={() => go(-1)}
          onSearch={() => go(1)}
        />
        <Checkbox id="follow" label="Follow" isChecked={follow} onChange={(_, on) => setFollow(on)} />
        <Checkbox
          id="fold"
          label="Fold equal lines of ranks"
          isChecked={fold}
          onChange={(_, on) => choose("fold", on ? "true" : "")}
        />
        {workers ? (
          <Button variant="link" onClick={() => choose("workers", "")}>
            worker {workers} only – show all
          </Button>
        ) : null}
        <Button variant="secondary" component="a" href={`${base}?${download.toString()}`} download>
          Download
        </Button>
      </div>
      {problem ? (
        <Alert isInline variant="danger" title={problem.message}>
          {problem.hint}
        </Alert>
      ) : null}
      <div className="under" role="status">
        {plural(lines.length, "line")}
        {dropped ? `, ${dropped} older ones are not shown: download has all` : ""}
        {ended ? ", the log has ended" : ""}
      </div>
      <div
        ref={box}
        className="log"
        role="log"
        aria-live="off"
        aria-label="Log"
        tabIndex={0}
        onWheel={(event) => {
          if (event.deltaY < 0) setFollow(false);
        }}
      >
        <div className="log-all" style={{ height: virtual.getTotalSize() }}>
          {virtual.getVirtualItems().map((item) => {
            const line = lines[item.index];
            return line ? (
              <Line key={item.key} line={line} top={item.start} found={find} current={hits[hit] === item.index && find !== ""} />
            ) : null;
          })}
        </div>
      </div>
    </div>
  );
}

const SERIOUS = new Set<string>(["warning", "error", "fatal"]);

function Line({ line, top, found, current }: { line: LogRow; top: number; found: string; current: boolean }) {
  return (
    <div
      className={`line line-${line.level ?? "plain"}${line.stream === "stderr" ? " line-stderr" : ""}${current ? " line-current" : ""}`}
      style={{ transform: `translateY(${top}px)` }}
    >
      {SERIOUS.has(line.level ?? "") ? <strong className="line-level">{line.level?.toUpperCase()} </strong> : null}
      <span className="line-time">{clock(line.time)}</span> <span className="line-source">{line.source}</span>{" "}
      <span className="line-text">{marked(line.text, found)}</span>
    </div>
  );
}

/** The text with what was found marked; text nodes only, whatever the line holds. */
function marked(text: string, found: string) {
  if (!found) return text;
  const parts: (string | JSX.Element)[] = [];
  const [low, wanted] = [text.toLowerCase(), found.toLowerCase()];
  let at = 0;
  for (let hit = low.indexOf(wanted); hit >= 0; hit = low.indexOf(wanted, at)) {
    parts.push(text.slice(at, hit), <mark key={hit}>{text.slice(hit, hit + wanted.length)}</mark>);
    at = hit + wanted.length;
  }
  return [...parts, text.slice(at)];
}

interface Lines {
  readonly lines: readonly LogRow[];
  readonly dropped: number;
  readonly problem: Problem | null;
  readonly ended: boolean;
}

const NONE: Lines = { lines: [], dropped: 0, problem: null, ended: false };

function useLines(detail: JobDetail, query: string): Lines {
  const { namespace, name, attempt, uid } = detail.row;
  const [state, setState] = useState<Lines>(NONE);
  useEffect(() => {
    const control = new AbortController();
    let waiting: LogRow[] = [];
    let frame = 0;
    setState(NONE);
    const flush = (): void => {
      frame = 0;
      const fresh = waiting;
      waiting = [];
      setState((was) => {
        const all = was.lines.concat(fresh);
        const extra = Math.max(0, all.length - KEPT);
        return { ...was, lines: extra ? all.slice(extra) : all, dropped: was.dropped + extra };
      });
    };
    streamLogs(`/api/v1/trainjobs/${namespace}/${name}/logs?${query}`, control.signal, (batch) => {
      waiting.push(...(batch.lines ?? []));
      if (batch.problem) setState((was) => ({ ...was, problem: batch.problem ?? null }));
      if (!frame) frame = window.requestAnimationFrame(flush);
    })
      .then(() => setState((was) => ({ ...was, ended: true })))
      .catch((error: unknown) => {
        if (!control.signal.aborted) setState((was) => ({ ...was, problem: problemOf(error) }));
      });
    return () => {
      control.abort();
      window.cancelAnimationFrame(frame);
    };
  }, [namespace, name, attempt, uid, query]);
  return state;
}
