import { Alert, Bullseye, Button, Checkbox, EmptyState, EmptyStateActions, EmptyStateBody, EmptyStateFooter, Flex, FlexItem, Spinner, Tooltip } from "@patternfly/react-core";
import AngleDownIcon from "@patternfly/react-icons/dist/esm/icons/angle-down-icon";
import AngleUpIcon from "@patternfly/react-icons/dist/esm/icons/angle-up-icon";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useCallback, useDeferredValue, useEffect, useLayoutEffect, useMemo, useRef, useState, type KeyboardEvent, type RefObject } from "react";
import { createPortal } from "react-dom";
import { jobUrl, type LogRow } from "../api/client";
import { useJobPage } from "../job/context";
import { plural } from "../lib/format";
import { useDebounced, useQueryParams } from "../lib/hooks";
import { isFinal } from "../lib/phases";
import { clock, zoneName } from "../lib/time";
import { markVisited } from "../lib/visited";
import { usePreferences } from "../shell/preferences";
import { useToasts } from "../shell/toasts";
import { Density } from "./Density";
import { LogLine } from "./LogLine";
import { downloadQuery, hitIndex, hitsIn, isSerious, lineId, lineIndex, logQuery, readLogFilters } from "./logQuery";
import { LogToolbar, type LogView, type ParamChange } from "./LogToolbar";
import styles from "./logs.module.css";
import { useLogLines } from "./useLogLines";

const LINE_PX = 20;
const BOTTOM_PX = 56; // the margins of the page below
const MARGIN_PX = 16; // of the full window
const LEAST_PX = 200;

/** The merged lines: chosen by the server, kept in a bounded buffer; only those in sight are drawn. */
export default function LogsTab() {
  const { detail, row, path } = useJobPage();
  const { zone, shortcuts } = usePreferences();
  const toast = useToasts();
  const [params, edit] = useQueryParams();
  const filters = useMemo(() => readLogFilters(params), [params]);
  const [linked, setLinked] = useState(() => params.get("line") ?? ""); // the line that brought the user here
  const [view, setView] = useState<LogView>({ follow: !linked && !filters.until && !filters.find, wrap: false, times: true, fullScreen: false });
  const wrap = params.get("wrap") === "true";
  const over = isFinal(row.phase);
  const query = useDebounced(logQuery(filters, { uid: row.uid, attempt: row.shownAttempt ?? 0, isFinal: over, line: linked }), 50);
  const { lines, counts, dropped, problem, state, older, loadOlder } = useLogLines(row, query);
  const change = useCallback(
    (next: ParamChange): void =>
      edit(
        (words) => {
          for (const [key, value] of Object.entries(next)) {
            words.delete(key);
            for (const one of Array.isArray(value) ? (value as readonly string[]) : [value as string]) if (one) words.append(key, one);
          }
        },
        { replace: true },
      ),
    [edit],
  );

  // -- where we are -------------------------------------------------------------------------------
  const box = useRef<HTMLDivElement>(null);
  const above = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({ count: lines.length, getScrollElement: () => box.current, estimateSize: () => LINE_PX, overscan: 20 });
  const [current, setCurrent] = useState<LogRow | null>(null);
  const follow = useCallback((on: boolean): void => setView((before) => (before.follow === on ? before : { ...before, follow: on })), []);
  const goTo = useCallback(
    (index: number): void => {
      const line = lines[index];
      if (!line) return;
      follow(false);
      setCurrent(line);
      virtual.scrollToIndex(index, { align: "center" });
    },
    [lines, virtual, follow],
  );
  useEffect(() => {
    if (lines.length) markVisited("logs");
  }, [lines.length]);
  useEffect(() => {
    if (view.follow && lines.length) virtual.scrollToIndex(lines.length - 1);
  }, [view.follow, lines, virtual]);
  const arrived = useRef(false);
  useEffect(() => {
    if (arrived.current || !linked) return;
    const index = lineIndex(lines, linked);
    if (index < 0) return;
    arrived.current = true;
    goTo(index);
  }, [lines, linked, goTo]);

  // -- finding ------------------------------------------------------------------------------------
  const searched = useDeferredValue(lines);
  const hits = useMemo(() => hitsIn(searched, filters.find), [searched, filters.find]);
  const [hit, setHit] = useState<{ find: string; line: LogRow | null }>({ find: "", line: null });
  const shownHit = hit.find === filters.find ? hit.line : null;
  const index = hitIndex(hits, searched, shownHit);
  const showHit = useCallback(
    (next: number): void => {
      const line = searched[hits[next] ?? -1];
      if (!line) return;
      setHit({ find: filters.find, line });
      goTo(hits[next] ?? 0);
    },
    [hits, searched, filters.find, goTo],
  );
  useEffect(() => {
    if (filters.find && !shownHit && hits.length) showHit(0); // what is typed is shown at once
  }, [filters.find, shownHit, hits, showHit]);
  const wantsMore = Boolean(filters.find) && !filters.only && older === "maybe" && state !== "loading" && lines.length < 1000;
  useEffect(() => {
    if (wantsMore) void loadOlder(); // finding in the newest few lines only would find too little
  }, [wantsMore, loadOlder]);
  const goHit = (step: 1 | -1): void => {
    if (hits.length) showHit((index + step + hits.length) % hits.length);
  };

  // -- errors -------------------------------------------------------------------------------------
  const goSerious = (step: 1 | -1): void => {
    const visible = virtual.getVirtualItems();
    const here = current ? lines.indexOf(current) : -1;
    const begin = here >= 0 ? here : step > 0 ? -1 : (visible.at(-1)?.index ?? lines.length - 1) + 1;
    for (let next = begin + step; next >= 0 && next < lines.length; next += step) if (isSerious(lines[next] as LogRow)) return goTo(next);
  };
  const serious = useMemo(() => [...counts.values()].reduce((sum, count) => sum + count.serious, 0), [counts]);

  const jump = (second: number): void => {
    const next = lines.findIndex((line) => line.time >= second * 1000);
    goTo(next < 0 ? lines.length - 1 : next);
  };
  const showOlder = async (): Promise<void> => {
    follow(false);
    const added = await loadOlder();
    window.requestAnimationFrame(() => box.current?.scrollBy(0, added * LINE_PX));
  };
  const copyLink = useCallback(
    (line: LogRow): void => {
      setCurrent(line);
      const id = lineId(lines, line);
      change({ line: id });
      const address = new URL(window.location.href);
      address.searchParams.set("line", id);
      void navigator.clipboard?.writeText(address.toString()).then(
        () => toast({ title: "Link to this line copied" }),
        () => undefined,
      );
    },
    [change, lines, toast],
  );
  const showRank = useCallback((rank: number): void => change({ ranks: String(rank), role: [] }), [change]);
  const clearFilters = (): void => change({ role: [], ranks: "", workers: "", level: "", since: "", until: "", find: "", only: "", regex: "" });
  const showAll = (): void => {
    setLinked("");
    setCurrent(null);
    change({ line: "" });
  };
  useEffect(() => {
    if (view.fullScreen) box.current?.focus();
  }, [view.fullScreen]);
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key === "Escape" && view.fullScreen) setView({ ...view, fullScreen: false });
    else if (event.ctrlKey || event.metaKey || event.altKey) return;
    else if (shortcuts && event.key === "n") goSerious(1);
    else if (shortcuts && event.key === "p") goSerious(-1);
    else if (["ArrowUp", "PageUp", "Home"].includes(event.key)) follow(false);
  };

  const height = useHeightToBottom(box, above, view.fullScreen);
  const download = jobUrl(row, "logs", downloadQuery(query));
  const content = (
    <>
      <div ref={above} className={styles["tab"]}>
      <LogToolbar
        detail={detail}
        filters={filters}
        view={{ ...view, wrap }}
        hits={{ index, count: hits.length }}
        download={download}
        onChange={change}
        onView={(next) => setView({ ...view, ...next })}
        onHit={goHit}
        onClear={clearFilters}
      />
      {problem ? (
        <Alert isInline variant="danger" component="h2" title={problem.message}>
          {problem.hint}
        </Alert>
      ) : null}
      {linked ? (
        <Alert isInline isPlain variant="info" component="p" title={`Lines around ${clock(Number(linked) / 1e6, zone)}`}>
          <Button variant="link" isInline onClick={showAll}>
            Show the whole log
          </Button>
        </Alert>
      ) : null}
      <Density counts={counts} onJump={jump} />
      <Flex justifyContent={{ default: "justifyContentSpaceBetween" }} className={styles["status"]}>
        <FlexItem role="status" data-testid="log-status">
          {plural(lines.length, "line")}
          {serious ? ` · ${plural(serious, "warning or error", "warnings and errors")}` : ""}
          {serious ? <SeriousButtons onGo={goSerious} /> : null}
          {dropped ? ` · ${plural(dropped, "older line")} hidden` : ""}
          {state === "ended" ? " · End of log" : ""}
          {` · ${zoneName(zone)}`}
        </FlexItem>
        <Flex>
          {older !== "none" && lines.length ? (
            <Button variant="link" isInline isLoading={older === "loading"} isDisabled={older === "loading"} onClick={() => void showOlder()}>
              Load older lines
            </Button>
          ) : null}
          {over ? null : <Checkbox id="follow" label="Follow" isChecked={view.follow} onChange={(_, on) => follow(on)} />}
          {view.fullScreen ? (
            <Button variant="link" isInline onClick={() => setView({ ...view, fullScreen: false })}>
              Exit full window
            </Button>
          ) : null}
        </Flex>
      </Flex>
      </div>
      <div
        ref={box}
        className={styles["log"]}
        style={{ blockSize: height }}
        role="log"
        aria-live="off"
        aria-label="Log"
        tabIndex={0}
        onKeyDown={onKeyDown}
        onWheel={(event) => {
          if (event.deltaY < 0) follow(false);
        }}
      >
        {lines.length ? null : <NoLines loading={state === "loading"} filtered={logIsFiltered(params)} onClear={clearFilters} />}
        <div className={styles["lines"]} style={{ height: virtual.getTotalSize() }}>
          {virtual.getVirtualItems().map((item) => {
            const line = lines[item.index];
            return line ? (
              <LogLine
                key={item.key}
                ref={wrap ? virtual.measureElement : null}
                index={item.index}
                line={line}
                style={{ transform: `translateY(${item.start}px)` }}
                find={filters.find}
                zone={zone}
                isWrapped={wrap}
                showsTime={view.times}
                isCurrent={line === current}
                linkTo={path("logs", { line: line.at })}
                onLink={copyLink}
                onRank={showRank}
              />
            ) : null;
          })}
        </div>
      </div>
    </>
  );
  if (!view.fullScreen) return <div className={styles["tab"]}>{content}</div>;
  return createPortal(
    // within the page it would lie below the masthead and the navigation
    <div className={styles["full"]} role="dialog" aria-modal="true" aria-label={`Log of ${row.name}`}>
      {content}
    </div>,
    document.body,
  );
}

const FILTER_KEYS = ["role", "ranks", "workers", "level", "since", "until", "only", "regex"];
const logIsFiltered = (params: URLSearchParams): boolean => FILTER_KEYS.some((key) => params.get(key));

/** From one warning or error to the next; the keys n and p do the same. */
function SeriousButtons({ onGo }: { onGo: (step: 1 | -1) => void }) {
  return (
    <span className={styles["serious"]}>
      <Tooltip content="Previous warning or error (p)">
        <Button variant="plain" size="sm" aria-label="Previous warning or error" icon={<AngleUpIcon />} onClick={() => onGo(-1)} />
      </Tooltip>
      <Tooltip content="Next warning or error (n)">
        <Button variant="plain" size="sm" aria-label="Next warning or error" icon={<AngleDownIcon />} onClick={() => onGo(1)} />
      </Tooltip>
    </span>
  );
}

function NoLines({ loading, filtered, onClear }: { loading: boolean; filtered: boolean; onClear: () => void }) {
  if (loading)
    return (
      <Bullseye>
        <Spinner aria-label="Loading the log" />
      </Bullseye>
    );
  return (
    <EmptyState titleText={filtered ? "No lines match these filters" : "No output yet"} headingLevel="h2" variant="sm">
      {filtered ? (
        <EmptyStateFooter>
          <EmptyStateActions>
            <Button variant="link" onClick={onClear}>
              Clear all filters
            </Button>
          </EmptyStateActions>
        </EmptyStateFooter>
      ) : (
        <EmptyStateBody>Lines appear here as soon as the job writes them.</EmptyStateBody>
      )}
    </EmptyState>
  );
}

/** The height that a box needs to reach the bottom of the window; what stands above it may grow. */
function useHeightToBottom(box: RefObject<HTMLElement>, above: RefObject<HTMLElement>, fullScreen: boolean): number {
  const [height, setHeight] = useState(LEAST_PX);
  useLayoutEffect(() => {
    const measure = (): void => {
      const top = box.current?.getBoundingClientRect().top ?? 0;
      setHeight(Math.max(LEAST_PX, Math.round(window.innerHeight - top - (fullScreen ? MARGIN_PX : BOTTOM_PX))));
    };
    measure();
    const observer = new ResizeObserver(measure);
    if (above.current) observer.observe(above.current);
    window.addEventListener("resize", measure);
    return () => {
      observer.disconnect();
      window.removeEventListener("resize", measure);
    };
  }, [box, above, fullScreen]);
  return height;
}
