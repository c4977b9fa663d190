import { Button, Checkbox, Progress, ProgressMeasureLocation, Tooltip } from "@patternfly/react-core";
import AngleDownIcon from "@patternfly/react-icons/dist/esm/icons/angle-down-icon";
import AngleRightIcon from "@patternfly/react-icons/dist/esm/icons/angle-right-icon";
import { InnerScrollContainer, Table, Tbody, Td, Th, Thead, Tr, type ThProps } from "@patternfly/react-table";
import { lazy, memo, Suspense, useCallback, useLayoutEffect, useMemo, useRef, useState, type CSSProperties, type Dispatch, type MouseEvent, type ReactNode, type RefObject, type SetStateAction } from "react";
import { Link, useNavigate } from "react-router-dom";
import { rowKey, type Action, type JobProgress, type JobRow } from "../api/client";
import { ActionMenu } from "../components/ActionMenu";
import { PageLoading } from "../components/PageLoading";
import { StatusLabel } from "../components/PhaseLabel";
import { ago, duration, roughly } from "../lib/format";
import { useNow } from "../lib/hooks";
import { jobPath } from "../lib/links";
import { isNotResponding } from "../lib/phases";
import { position, progressPercent } from "../lib/progress";
import { dateTimeZone } from "../lib/time";
import { usePreferences } from "../shell/preferences";
import { ACTION_LABELS } from "./actions";
import { fittingColumns, leastWidth, nameWidth, type Column, type ColumnKey } from "./columns";
import type { Filters } from "./filters";
import styles from "./jobs.module.css";
import { reasonOf } from "./reason";

const ExpandedJob = lazy(() => import("./ExpandedJob"));

type Sort = Filters["sort"];
const SORTED = ["name", "phase", "owner", "created", "duration"] as const;

export interface ListProps {
  rows: readonly JobRow[];
  progress: ReadonlyMap<string, JobProgress>;
  refusal: (action: Action) => string;
  onAction: (action: Action, rows: readonly JobRow[]) => void;
}

interface Props extends ListProps {
  columns: ReadonlySet<ColumnKey>;
  sort: Sort;
  onSort: (sort: Sort) => void;
  selected: ReadonlySet<string>;
  onSelect: Dispatch<SetStateAction<ReadonlySet<string>>>;
}

const ranFor = (row: JobRow, now: number): string => duration(row.started === null ? null : (row.released ?? row.finished ?? now) - row.started);

/** One line for each job; a click anywhere in it opens the job. */
export function JobTable({ rows, progress, columns, sort, onSort, selected, onSelect, refusal, onAction }: Props) {
  const now = useNow();
  const { columns: chosen } = usePreferences();
  const [expanded, setExpanded] = useState<ReadonlySet<string>>(new Set());
  const sorting = (column: (typeof SORTED)[number]): ThProps["sort"] => ({
    columnIndex: SORTED.indexOf(column),
    sortBy: { index: SORTED.indexOf(sort.replace("-", "") as (typeof SORTED)[number]), direction: sort.startsWith("-") ? "desc" : "asc" },
    onSort: (_event, _index, direction) => onSort(`${direction === "desc" ? "-" : ""}${column}` as Sort),
  });
  const keys = rows.map(rowKey);
  const all = keys.length > 0 && keys.every((key) => selected.has(key));
  const toggleSelected = useCallback((key: string) => onSelect((before) => toggledIn(before, key)), [onSelect]);
  const toggleExpanded = useCallback((key: string) => setExpanded((before) => toggledIn(before, key)), []);
  const box = useRef<HTMLDivElement>(null);
  const width = useWidth(box);
  const fitting = useMemo(() => fittingColumns(columns, chosen, width), [columns, chosen, width]);
  return (
    <div ref={box}>
      <InnerScrollContainer>
        <Table aria-label="Training jobs" variant="compact" gridBreakPoint="" className={styles["table"] ?? ""} style={{ minInlineSize: `${leastWidth(fitting)}rem` }}>
          <Thead>
            <Tr>
              <Th className={styles["select"] ?? ""} aria-label="Select all jobs">
                <Checkbox
                  id="select-all"
                  aria-label="Select all jobs on this page"
                  isChecked={all ? true : selected.size ? null : false}
                  onChange={(_, on) => onSelect(on ? new Set(keys) : new Set())}
                />
              </Th>
              <Th modifier="nowrap" style={cellWidth(nameWidth(fitting, width))} sort={sorting("name")}>
                Name
              </Th>
              <Th modifier="nowrap" sort={sorting("phase")}>
                Status
              </Th>
              {fitting.map(({ key, label, width, sort: sortKey }) => (
                <Th key={key} modifier="nowrap" style={cellWidth(width)} {...(sortKey ? { sort: sorting(sortKey) } : {})}>
                  {label}
                </Th>
              ))}
              <Th className={styles["tool"] ?? ""} screenReaderText="Expand" />
              <Th className={styles["tool"] ?? ""} screenReaderText="Actions" isStickyColumn stickyMinWidth="0" stickyRightOffset="0" />
            </Tr>
          </Thead>
          {rows.map((row) => {
            const key = rowKey(row);
            const open = expanded.has(key);
            return (
              <Tbody key={key} isExpanded={open}>
                <Row
                  row={row}
                  rowId={key}
                  columns={fitting}
                  reached={progress.get(`${row.namespace}/${row.name}`)}
                  age={ago(row.created, now)}
                  ran={ranFor(row, now)}
                  isSelected={selected.has(key)}
                  isExpanded={open}
                  onSelect={toggleSelected}
                  onExpand={toggleExpanded}
                  refusal={refusal}
                  onAction={onAction}
                />
                {open ? (
                  <Tr isExpanded>
                    <Td colSpan={5 + fitting.length} noPadding>
                      <Suspense fallback={<PageLoading label="Loading" />}>
                        <ExpandedJob row={row} />
                      </Suspense>
                    </Td>
                  </Tr>
                ) : null}
              </Tbody>
            );
          })}
        </Table>
      </InnerScrollContainer>
    </div>
  );
}

const cellWidth = (rem: number): CSSProperties => ({ "--pf-v6-c-table--cell--Width": `${rem}rem` }) as CSSProperties;

const PX_PER_REM = 16;

/** The width of an element in rem, as it changes. */
function useWidth(box: RefObject<HTMLElement>): number {
  const [width, setWidth] = useState(PX_PER_REM * 5);
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    setWidth(element.clientWidth / PX_PER_REM);
    const observer = new ResizeObserver(([entry]) => setWidth((entry?.contentRect.width ?? 0) / PX_PER_REM));
    observer.observe(element);
    return () => observer.disconnect();
  }, [box]);
  return width;
}

function toggledIn(values: ReadonlySet<string>, value: string): ReadonlySet<string> {
  const next = new Set(values);
  if (!next.delete(value)) next.add(value);
  return next;
}

interface RowProps {
  row: JobRow;
  rowId: string;
  columns: readonly Column[];
  reached: JobProgress | undefined;
  age: string;
  ran: string;
  isSelected: boolean;
  isExpanded: boolean;
  onSelect: (key: string) => void;
  onExpand: (key: string) => void;
  refusal: (action: Action) => string;
  onAction: (action: Action, rows: readonly JobRow[]) => void;
}

/** Whether a click was meant for the row, and not for a control in it or for selecting text. */
const isForRow = (event: MouseEvent): boolean =>
  event.target instanceof Element && !event.target.closest("a, button, input, label, [role=menu]") && !window.getSelection()?.toString();

const Row = memo(
  function Row({ row, rowId, columns, reached, age, ran, isSelected, isExpanded, onSelect, onExpand, refusal, onAction }: RowProps) {
    const navigate = useNavigate();
    const { zone } = usePreferences();
    const path = jobPath(row);
    const cells: Record<ColumnKey, () => ReactNode> = {
      progress: () => <Reached row={row} reached={reached} />,
      workers: () => `${row.workers_ready}/${row.workers}`,
      gpus: () => row.gpus,
      project: () => row.namespace,
      type: () => row.kind,
      queue: () => row.queue || "–",
      owner: () => row.owner.split(":").at(-1),
      created: () => (
        <time dateTime={new Date(row.created * 1000).toISOString()} title={dateTimeZone(row.created, zone)}>
          {age}
        </time>
      ),
      duration: () => ran,
    };
    return (
      <Tr
        data-job={`${row.namespace}/${row.name}`}
        className={styles["row"] ?? ""}
        isRowSelected={isSelected}
        onClick={(event) => {
          if (isForRow(event)) void navigate(path);
        }}
      >
        <Td className={styles["select"] ?? ""}>
          <Checkbox id={`select-${rowId}`} aria-label={`Select ${row.name}`} isChecked={isSelected} onChange={() => onSelect(rowId)} />
        </Td>
        <Td dataLabel="Name" modifier="truncate" title={row.name}>
          <Link to={path}>{row.name}</Link>
        </Td>
        <Td dataLabel="Status" modifier="truncate">
          <Status row={row} />
        </Td>
        {columns.map(({ key, label }) => (
          <Td key={key} dataLabel={label} modifier="truncate">
            {cells[key]()}
          </Td>
        ))}
        <Td className={styles["tool"] ?? ""}>
          <Button
            variant="plain"
            size="sm"
            data-expand
            aria-label={`${isExpanded ? "Collapse" : "Expand"} ${row.name}`}
            aria-expanded={isExpanded}
            icon={isExpanded ? <AngleDownIcon /> : <AngleRightIcon />}
            onClick={() => onExpand(rowId)}
          />
        </Td>
        <Td className={styles["tool"] ?? ""} isStickyColumn stickyMinWidth="0" stickyRightOffset="0">
          <RowMenu row={row} refusal={refusal} onAction={onAction} />
        </Td>
      </Tr>
    );
  },
  (before, after) =>
    before.row === after.row &&
    before.columns === after.columns &&
    before.reached === after.reached &&
    before.age === after.age &&
    before.ran === after.ran &&
    before.isSelected === after.isSelected &&
    before.isExpanded === after.isExpanded,
);

function Status({ row }: { row: JobRow }) {
  const reason = reasonOf(row);
  return (
    <span className={styles["status"]}>
      <StatusLabel row={row} isCompact />
      {reason ? (
        <Tooltip content={reason} entryDelay={500} position="top-start">
          <span className={styles["reason"]} data-testid="reason">
            {reason}
          </span>
        </Tooltip>
      ) : null}
    </span>
  );
}

/** How far a job is: a bar, and the time left of one that gets on. */
export function Reached({ row, reached }: { row: JobRow; reached: JobProgress | undefined }) {
  const percent = reached ? progressPercent(reached) : null;
  if (!reached || (percent === null && !position(reached))) return <span aria-hidden>–</span>;
  if (percent === null) return <>{position(reached)}</>;
  const left = row.phase === "Running" && !isNotResponding(row) && reached.eta !== null ? roughly(reached.eta) : "";
  return (
    <span className={styles["reached"]} title={position(reached)}>
      <Progress
        value={percent}
        size="sm"
        measureLocation={ProgressMeasureLocation.none}
        aria-label={`${row.name}: ${percent}% done`}
      />
      <span>
        {percent}%{left ? ` · ${left}` : ""}
      </span>
    </span>
  );
}

/** The actions on one job, those that stop or remove it last. */
export function RowMenu({ row, refusal, onAction }: Pick<ListProps, "refusal" | "onAction"> & { row: JobRow }) {
  const item = (action: Action) => ({
    label: ACTION_LABELS[action],
    isDanger: action === "delete",
    refusal: refusal(action),
    onClick: () => onAction(action, [row]),
  });
  const has = (actions: readonly Action[]) => actions.filter((action) => row.actions.includes(action)).map(item);
  return <ActionMenu variant="kebab" size="sm" label={`Actions for ${row.name}`} groups={[has(["clone", "retry", "resume"]), has(["suspend", "cancel", "delete"])]} />;
}
