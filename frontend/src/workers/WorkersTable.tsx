import { Button } from "@patternfly/react-core";
import { InnerScrollContainer, Table, Tbody, Td, Th, Thead, Tr } from "@patternfly/react-table";
import { useState } from "react";
import type { JobDetail, NodePlace, WorkerState } from "../api/client";
import shared from "../components/components.module.css";
import { PhaseLabel } from "../components/PhaseLabel";
import { Section } from "../components/Section";
import { useJobPage } from "../job/context";
import { bytes, decimal, spans } from "../lib/format";
import { bySeverity } from "../lib/phases";
import { nodeOf, ranksOf, workerReason } from "./topology";

const COLUMNS = ["Worker", "Group", "Ranks", "Status", "Reason", "Node", "Zone", "Rack", "Restarts", "Exit code", "CPU", "Memory", "GPUs"] as const;
type Column = (typeof COLUMNS)[number];
const DASH = "–";

/** The workers, the worst first; each can be expanded to its ranks. */
export function WorkersTable({ nodes, onWorker }: { nodes: readonly NodePlace[]; onWorker: (index: number) => void }) {
  const { detail } = useJobPage();
  const [open, setOpen] = useState<ReadonlySet<number>>(new Set());
  const workers = [...(detail.state.workers ?? [])].sort(bySeverity);
  if (!workers.length) return null;
  const placeOf = (worker: WorkerState): NodePlace | undefined => nodes.find(({ name }) => name === nodeOf(worker, detail.state.ranks ?? []));
  const columns = COLUMNS.filter((column) => workers.some((worker) => isKnown(column, worker, placeOf(worker))));
  const toggle = (index: number): void =>
    setOpen((before) => {
      const next = new Set(before);
      if (!next.delete(index)) next.add(index);
      return next;
    });
  return (
    <Section title="Workers">
      <InnerScrollContainer>
        <Table aria-label="Workers" variant="compact" isExpandable gridBreakPoint="" className={shared["dense"] ?? ""}>
          <Thead>
            <Tr>
              <Th screenReaderText="Ranks" />
              {columns.map((column) => (
                <Th key={column} modifier="nowrap">
                  {column}
                </Th>
              ))}
            </Tr>
          </Thead>
          {workers.map((worker, index) => (
            <Tbody key={worker.index} isExpanded={open.has(worker.index)}>
              <WorkerRow worker={worker} place={placeOf(worker)} rowIndex={index} isOpen={open.has(worker.index)} onToggle={toggle} onWorker={onWorker} detail={detail} columns={columns} />
              {open.has(worker.index) ? (
                <Tr isExpanded>
                  <Td colSpan={columns.length + 1} noPadding={false}>
                    <RanksTable worker={worker} detail={detail} />
                  </Td>
                </Tr>
              ) : null}
            </Tbody>
          ))}
        </Table>
      </InnerScrollContainer>
    </Section>
  );
}

/** Whether a worker has a value for a column that is left out where no worker has one. */
function isKnown(column: Column, worker: WorkerState, place: NodePlace | undefined): boolean {
  if (column === "Zone" || column === "Rack") return Boolean(column === "Zone" ? place?.zone : place?.rack);
  if (column === "Group") return Boolean(worker.group);
  if (column === "GPUs") return Boolean(worker.gpus?.length);
  return column !== "CPU" || typeof worker.cpu_cores === "number";
}

interface RowProps {
  worker: WorkerState;
  place: NodePlace | undefined;
  detail: JobDetail;
  columns: readonly Column[];
  rowIndex: number;
  isOpen: boolean;
  onToggle: (index: number) => void;
  onWorker: (index: number) => void;
}

function WorkerRow({ worker, place, detail, columns, rowIndex, isOpen, onToggle, onWorker }: RowProps) {
  const ranks = ranksOf(detail, worker.index);
  const { memory_bytes: memory, memory_limit_bytes: limit, cpu_cores: cores } = worker;
  return (
    <Tr data-testid={`worker-${worker.index}`}>
      <Td {...(ranks.length ? { expand: { rowIndex, isExpanded: isOpen, onToggle: () => onToggle(worker.index), expandId: "ranks" } } : {})} />
      <Td dataLabel="Worker" modifier="nowrap">
        <Button variant="link" isInline style={{ whiteSpace: "nowrap" }} onClick={() => onWorker(worker.index)}>
          Worker {worker.index}
        </Button>
      </Td>
      {columns.includes("Group") ? <Td dataLabel="Group" modifier="nowrap">{worker.group || DASH}</Td> : null}
      <Td dataLabel="Ranks" modifier="nowrap">{spans(ranks.map((rank) => rank.rank)) || DASH}</Td>
      <Td dataLabel="Status">
        <PhaseLabel phase={worker.phase} isCompact />
      </Td>
      <Td dataLabel="Reason" style={{ minInlineSize: "11rem" }}>
        {workerReason(detail, worker) || DASH}
      </Td>
      <Td dataLabel="Node" modifier="nowrap">{nodeOf(worker, detail.state.ranks ?? []) || "Not scheduled"}</Td>
      {columns.includes("Zone") ? <Td dataLabel="Zone" modifier="nowrap">{place?.zone || DASH}</Td> : null}
      {columns.includes("Rack") ? <Td dataLabel="Rack" modifier="nowrap">{place?.rack || DASH}</Td> : null}
      <Td dataLabel="Restarts">{worker.restarts ?? 0}</Td>
      <Td dataLabel="Exit code">{worker.exit_code ?? DASH}</Td>
      {columns.includes("CPU") ? <Td dataLabel="CPU">{typeof cores === "number" ? decimal(cores) : DASH}</Td> : null}
      <Td dataLabel="Memory" modifier="nowrap">
        {memory ? bytes(memory) : DASH}
        {memory && limit ? ` of ${bytes(limit)}` : ""}
      </Td>
      {columns.includes("GPUs") ? <Td dataLabel="GPUs">{(worker.gpus ?? []).join(", ") || DASH}</Td> : null}
    </Tr>
  );
}

function RanksTable({ worker, detail }: { worker: WorkerState; detail: JobDetail }) {
  const [first] = detail.state.findings ?? [];
  return (
    <Table aria-label={`Ranks of worker ${worker.index}`} variant="compact" borders={false} gridBreakPoint="">
      <Thead>
        <Tr>
          {["Rank", "Local rank", "Node", "GPUs", "Process ID", "Exit code"].map((column) => (
            <Th key={column}>{column}</Th>
          ))}
        </Tr>
      </Thead>
      <Tbody>
        {ranksOf(detail, worker.index).map((rank) => (
          <Tr key={rank.rank}>
            <Td dataLabel="Rank">{rank.rank}</Td>
            <Td dataLabel="Local rank">{rank.local_rank ?? 0}</Td>
            <Td dataLabel="Node">{rank.node || DASH}</Td>
            <Td dataLabel="GPUs">{(rank.gpus ?? []).join(", ") || DASH}</Td>
            <Td dataLabel="Process ID">{rank.pid || DASH}</Td>
            <Td dataLabel="Exit code">
              {rank.exit_code ?? DASH}
              {rank.followed && rank.rank !== first?.rank && rank.worker !== first?.worker ? " (stopped by another rank)" : ""}
            </Td>
          </Tr>
        ))}
      </Tbody>
    </Table>
  );
}
