import { ActionsColumn, Table, Tbody, Td, Th, Thead, Tr, type ThProps } from "@patternfly/react-table";
import { memo, useState, type Dispatch, type SetStateAction } from "react";
import { Link } from "react-router-dom";
import { keyOf, type Action, type JobRow, type ListQuery } from "../api/client";
import { WORDS } from "../components/Actions";
import { PhaseLabel } from "../components/PhaseLabel";
import { useNow } from "../hooks";
import { ago, duration, moment } from "../words";
import { Peek } from "./Peek";

type Sort = NonNullable<ListQuery["sort"]>;
const SORTED = ["name", "phase", "owner", "created", "duration"] as const;

interface Props {
  rows: readonly JobRow[];
  sort: Sort;
  onSort: (sort: Sort) => void;
  selected: ReadonlySet<string>;
  onSelect: Dispatch<SetStateAction<ReadonlySet<string>>>;
  onAction: (action: Action, row: JobRow) => void;
}

export function JobTable({ rows, sort, onSort, selected, onSelect, onAction }: Props) {
  const now = useNow();
  const sorting = (column: (typeof SORTED)[number]): ThProps["sort"] => ({
    columnIndex: SORTED.indexOf(column),
    sortBy: {
      index: SORTED.indexOf(sort.replace("-", "") as (typeof SORTED)[number]),
      direction: sort.startsWith("-") ? "desc" : "asc",
    },
    onSort: (_, __, direction) => onSort(`${direction === "desc" ? "-" : ""}${column}` as Sort),
  });
  const all = rows.length > 0 && rows.every((row) => selected.has(keyOf(row)));
  const toggle = (key: string, on: boolean): void => {
    onSelect((was) => {
      const next = new Set(was); // rows are drawn again only when they change: what they know of the others is old
      if (on) next.add(key);
      else next.delete(key);
      return next;
    });
  };
  const gpus = rows.some((row) => row.gpus > 0);
  const queues = rows.some((row) => row.queue);
  const [open, setOpen] = useState<ReadonlySet<string>>(new Set());
  const peek = (key: string): void =>
    setOpen((was) => {
      const next = new Set(was);
      if (!next.delete(key)) next.add(key);
      return next;
    });
  const columns = 9 + Number(gpus) + Number(queues);
  return (
    <Table aria-label="Training jobs" variant="compact">
      <Thead>
        <Tr>
          <Th screenReaderText="A closer look" />
          <Th
            aria-label="Select all jobs"
            select={{ isSelected: all, onSelect: (_, on) => onSelect(on ? new Set(rows.map((row) => keyOf(row))) : new Set()) }}
          />
          <Th modifier="nowrap" sort={sorting("name")}>Name</Th>
          <Th>Type</Th>
          <Th modifier="nowrap" width={30} sort={sorting("phase")}>Status</Th>
          <Th modifier="nowrap">Workers</Th>
          {gpus ? <Th>GPUs</Th> : null}
          {queues ? <Th>Queue</Th> : null}
          <Th modifier="nowrap" sort={sorting("owner")}>Owner</Th>
          <Th modifier="nowrap" sort={sorting("created")}>Created</Th>
          <Th modifier="nowrap" sort={sorting("duration")}>Duration</Th>
          <Th screenReaderText="Actions" />
        </Tr>
      </Thead>
      {rows.map((row, index) => (
        <Tbody key={keyOf(row)} isExpanded={open.has(keyOf(row))}>
          <Row
            row={row}
            queues={queues}
            open={open.has(keyOf(row))}
            onPeek={peek}
            index={index}
            gpus={gpus}
            age={ago(row.created, now)}
            ran={duration(row.started === null ? null : (row.released ?? row.finished ?? now) - row.started)}
            selected={selected.has(keyOf(row))}
            onSelect={toggle}
            onAction={onAction}
          />
          {open.has(keyOf(row)) ? (
            <Tr isExpanded>
              <Td colSpan={columns + 1} noPadding>
                <Peek row={row} />
              </Td>
            </Tr>
          ) : null}
        </Tbody>
      ))}
    </Table>
  );
}

interface RowProps {
  row: JobRow;
  index: number;
  gpus: boolean;
  queues: boolean;
  open: boolean;
  onPeek: (key: string) => void;
  age: string;
  ran: string;
  selected: boolean;
  onSelect: (key: string, on: boolean) => void;
  onAction: (action: Action, row: JobRow) => void;
}

const Row = memo(
  function Row({ row, index, gpus, queues, open, age, ran, selected, onPeek, onSelect, onAction }: RowProps) {
    const place = `/jobs/${row.namespace}/${row.name}`;
    return (
      <Tr data-job={`${row.namespace}/${row.name}`}>
        <Td
          expand={{
            rowIndex: index,
            isExpanded: open,
            expandId: `peek-${keyOf(row)}`,
            onToggle: () => onPeek(keyOf(row)),
          }}
        />
        <Td
          select={{ rowIndex: index, isSelected: selected, onSelect: (_, on) => onSelect(keyOf(row), on) }}
        />
        <Td dataLabel="Name" modifier="breakWord">
          <Link to={place}>{row.name}</Link>
          <div className="under">{row.namespace}</div>
        </Td>
        <Td dataLabel="Type">{row.kind}</Td>
        <Td dataLabel="Status" modifier="breakWord">
          <PhaseLabel phase={row.phase} />
          {row.why && row.phase !== "Succeeded" ? <div className="under why">{row.why}</div> : null}
        </Td>
        <Td dataLabel="Workers">
          {row.workers_ready}/{row.workers}
        </Td>
        {gpus ? <Td dataLabel="GPUs">{row.gpus}</Td> : null}
        {queues ? <Td dataLabel="Queue">{row.queue || "–"}</Td> : null}
        <Td dataLabel="Owner">{row.owner}</Td>
        <Td dataLabel="Created">
          <time dateTime={new Date(row.created * 1000).toISOString()} title={moment(row.created)}>
            {age}
          </time>
        </Td>
        <Td dataLabel="Duration">{ran}</Td>
        <Td isActionCell>
          <ActionsColumn
            items={row.actions.map((action) => ({ title: WORDS[action], onClick: () => onAction(action, row) }))}
            popperProps={{ position: "right" }}
          />
        </Td>
      </Tr>
    );
  },
  (was, is) =>
    was.row === is.row && was.age === is.age && was.ran === is.ran && was.selected === is.selected && was.index === is.index && was.open === is.open,
);
