import { Alert, Button, Checkbox } from "@patternfly/react-core";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useMemo, useRef, useState } from "react";
import type { JobDetail, LogRow } from "../api/client";
import { done } from "../done";
import { useAsked, useRested } from "../hooks";
import { at } from "../where";
import { clock, plural } from "../words";
import { Density } from "./Density";
import { Filters } from "./Filters";
import { Line, pattern } from "./Line";
import { isBad, TAIL, useLines } from "./useLines";

const LINE_PX = 20;
const AROUND_SECONDS = 60;

/** `0-3,5` as numbers; what is no number is left out. */
function numbers(text: string): number[] {
  return text.split(",").flatMap((part) => {
    const [first = "", last = first] = part.trim().split("-");
    const [from, to] = [Number(first), Number(last)];
    if (!first || !Number.isInteger(from) || !Number.isInteger(to) || to - from > 1000) return [];
    return Array.from({ length: Math.max(0, to - from + 1) }, (_, at) => from + at);
  });
}

/** The question to the server that the address means. */
function asked(params: URLSearchParams, uid: string): string {
  const made = new URLSearchParams({ tail: String(TAIL), tidy: "true" });
  for (const rank of numbers(params.get("ranks") ?? "")) made.append("ranks", String(rank));
  for (const worker of numbers(params.get("workers") ?? "")) made.append("workers", String(worker));
  for (const [key, name] of [["role", "roles"], ["regex", "regex"], ["level", "level"], ["fold", "fold"], ["attempt", "attempt"]] as const) {
    const value = params.get(key);
    if (value) made.set(name, value);
  }
  const line = Number(params.get("line") ?? 0) / 1e9;
  const since = params.get("since") ?? (line ? String(line - AROUND_SECONDS) : "");
  const until = params.get("until") ?? (line ? String(line + AROUND_SECONDS) : "");
  if (since) made.set("since", since);
  if (until) made.set("until", until);
  else made.set("follow", "true");
  if (uid && !uid.includes("/")) made.set("uid", uid);
  return made.toString();
}

/** The merged lines: chosen by the server, kept in a bounded buffer, only those in sight are drawn. */
export function Logs({ detail }: { detail: JobDetail }) {
  const { row } = detail;
  const [params, ask] = useAsked();
  const linked = params.get("line") ?? "";
  const [follow, setFollow] = useState(!linked && !params.get("until"));
  const [find, setFind] = useState("");
  const [hit, setHit] = useState(0);
  const wrap = params.get("wrap") === "true";
  const said = asked(params, row.uid);
  const query = useRested(said, 250);
  const { lines, counts, dropped, problem, ended, older, showOlder } = useLines(row, query);
  const change = (changes: Record<string, string>): void =>
    ask(
      (next) => {
        for (const [key, value] of Object.entries(changes))
          if (value) next.set(key, value);
          else next.delete(key);
      },
      { replace: true },
    );
  const hits = useMemo(() => {
    const wanted = pattern(find);
    return wanted ? lines.flatMap((line, at) => (line.text.search(wanted) >= 0 ? [at] : [])) : [];
  }, [find, lines]);

  const box = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({
    count: lines.length,
    getScrollElement: () => box.current,
    estimateSize: () => LINE_PX,
    overscan: 20,
  });
  useEffect(() => {
    if (lines.length) done("logs");
  }, [lines.length > 0]); // eslint-disable-line -- once
  const [current, setCurrent] = useState(-1);
  useEffect(() => {
    if (follow && lines.length) virtual.scrollToIndex(lines.length - 1);
  }, [follow, lines, virtual]);
  const goTo = (index: number): void => {
    setFollow(false);
    setCurrent(index);
    virtual.scrollToIndex(index, { align: "center" });
  };
  const target = linked ? lines.findIndex((line) => line.at === linked) : -1;
  useEffect(() => {
    if (target >= 0) goTo(target);
  }, [target]); // eslint-disable-line -- once the line is there
  const goHit = (step: number): void => {
    if (!hits.length) return;
    const next = (hit + step + hits.length) % hits.length;
    setHit(next);
    goTo(hits[next] ?? 0);
  };
  const goBad = (step: 1 | -1): void => {
    const visible = virtual.getVirtualItems();
    const begin = current >= 0 ? current : step > 0 ? -1 : (visible.at(-1)?.index ?? lines.length);
    for (let at = begin + step; at >= 0 && at < lines.length; at += step)
      if (isBad(lines[at] as LogRow)) return goTo(at);
  };
  const jump = (second: number): void => {
    const at = lines.findIndex((line) => line.time >= second * 1000);
    goTo(at < 0 ? lines.length - 1 : at);
  };
  const more = async (): Promise<void> => {
    const came = await showOlder();
    setFollow(false);
    window.requestAnimationFrame(() => box.current?.scrollBy(0, came * LINE_PX));
  };
  const link = (line: LogRow): void => {
    change({ line: line.at });
    const address = `${window.location.origin}${window.location.pathname}?line=${line.at}`;
    void navigator.clipboard?.writeText(address).catch(() => undefined);
  };

  const base = at(`/api/v1/trainjobs/${row.namespace}/${row.name}/logs`);
  const download = new URLSearchParams(query);
  for (const key of ["follow", "tail"]) download.delete(key);
  download.set("format", "text");
  const bad = useMemo(() => [...counts.values()].reduce((sum, one) => sum + one.bad, 0), [counts]);

  return (
    <div className="stack">
      <Filters
        params={params}
        onChange={change}
        find={find}
        onFind={(words) => {
          setFind(words);
          setHit(0);
        }}
        found={find ? `${hits.length ? hit + 1 : 0} / ${hits.length}` : ""}
        onHit={goHit}
        begun={row.created}
        attempts={row.attempt}
      />
      <div className="filters">
        <Checkbox id="follow" label="Follow" isChecked={follow} onChange={(_, on) => setFollow(on)} />
        <Checkbox id="fold" label="Fold equal lines of ranks" isChecked={params.get("fold") === "true"} onChange={(_, on) => change({ fold: on ? "true" : "" })} />
        <Checkbox id="wrap" label="Wrap" isChecked={wrap} onChange={(_, on) => change({ wrap: on ? "true" : "" })} />
        <Button variant="secondary" size="sm" isDisabled={!bad} onClick={() => goBad(-1)}>
          Previous error
        </Button>
        <Button variant="secondary" size="sm" isDisabled={!bad} onClick={() => goBad(1)}>
          Next error
        </Button>
        <Button variant="secondary" size="sm" component="a" href={`${base}?${download.toString()}`} download>
          Download
        </Button>
      </div>
      {problem ? (
        <Alert isInline variant="danger" component="p" title={problem.message}>
          {problem.hint}
        </Alert>
      ) : null}
      {linked ? (
        <Alert isInline isPlain variant="info" component="p" title={`Lines around ${clock(Number(linked) / 1e6)}`}>
          <Button variant="link" isInline onClick={() => change({ line: "" })}>
            Show the whole log
          </Button>
        </Alert>
      ) : null}
      <Density counts={counts} onJump={jump} />
      <div className="under" role="status">
        {plural(lines.length, "line")}
        {bad ? `, ${plural(bad, "warning or error", "warnings and errors")}` : ""}
        {dropped ? `, ${dropped} older ones are not shown` : ""}
        {ended ? ", the log has ended" : ""}
      </div>
      {older !== "none" && lines.length ? (
        <div>
          <Button variant="link" isInline isLoading={older === "coming"} isDisabled={older === "coming"} onClick={() => void more()}>
            Show older lines
          </Button>
        </div>
      ) : null}
      <div
        ref={box}
        className="log"
        role="log"
        aria-live="off"
        aria-label="Log"
        tabIndex={0}
        onKeyDown={(event) => {
          if (event.key === "n") goBad(1);
          else if (event.key === "p") goBad(-1);
          else if (["ArrowUp", "PageUp", "Home"].includes(event.key)) setFollow(false);
        }}
        onWheel={(event) => {
          if (event.deltaY < 0) setFollow(false);
        }}
      >
        <div className="log-all" style={{ height: virtual.getTotalSize() }}>
          {virtual.getVirtualItems().map((item) => {
            const line = lines[item.index];
            return line ? (
              <Line
                key={item.key}
                ref={wrap ? virtual.measureElement : null}
                index={item.index}
                line={line}
                style={{ transform: `translateY(${item.start}px)` }}
                found={find}
                wrap={wrap}
                current={item.index === current}
                onLink={link}
              />
            ) : null;
          })}
        </div>
      </div>
    </div>
  );
}
