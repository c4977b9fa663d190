import { Table, Tbody, Td, Th, Thead, Tr } from "@patternfly/react-table";
import { useState } from "react";
import { Link } from "react-router-dom";
import type { JobDetail, Phase, WorkerState } from "../api/client";
import { Choice } from "../components/Choice";
import { LOOKS, PhaseLabel } from "../components/PhaseLabel";
import { bytes } from "../words";

const WORST: readonly Phase[] = ["Failed", "Cancelled", "Pending", "Queued", "Initializing", "Suspended", "Deleting", "Running", "Succeeded"];
const worst = (one: WorkerState, other: WorkerState): number =>
  WORST.indexOf(one.phase) - WORST.indexOf(other.phase) || one.index - other.index;

function ranksOf(detail: JobDetail, worker: number): string {
  const ranks = (detail.state.ranks ?? []).filter((one) => one.worker === worker).map((one) => one.rank);
  if (!ranks.length) return "";
  const [first, last] = [Math.min(...ranks), Math.max(...ranks)];
  return first === last ? `rank ${first}` : `ranks ${first}–${last}`;
}

/** One tile a worker: shape, word and colour say how it is; a list of links, so that everybody can walk it. */
export function WorkerTiles({ detail, by = "none" }: { detail: JobDetail; by?: string }) {
  const workers = [...(detail.state.workers ?? [])].sort((a, b) => a.index - b.index);
  if (!workers.length) return <p>No worker has started yet; {detail.row.workers} are wanted.</p>;
  const groups = new Map<string, WorkerState[]>();
  for (const worker of workers) {
    const key = by === "node" ? worker.node || "no node yet" : by === "status" ? worker.phase : "";
    groups.set(key, [...(groups.get(key) ?? []), worker]);
  }
  return (
    <>
      {[...groups].map(([title, some]) => (
        <div key={title}>
          {title ? <h3>{title}</h3> : null}
          <ul className="tiles" aria-label={title ? `Workers, ${title}` : "Workers"}>
            {some.map((worker) => (
              <Tile key={worker.index} worker={worker} detail={detail} />
            ))}
          </ul>
        </div>
      ))}
    </>
  );
}

function Tile({ worker, detail }: { worker: WorkerState; detail: JobDetail }) {
  const { icon: Icon, color } = LOOKS[worker.phase];
  return (
    <li>
      <Link
        to={`/jobs/${detail.row.namespace}/${detail.row.name}/logs?workers=${worker.index}`}
        className={`tile tile-${color}`}
        title={[worker.node, worker.reason, worker.message].filter(Boolean).join(" · ")}
      >
        <strong>
          <Icon /> worker {worker.index}
        </strong>
        <span>{worker.phase}</span>
        <span className="under">{ranksOf(detail, worker.index)}</span>
      </Link>
    </li>
  );
}

export function Workers({ detail }: { detail: JobDetail }) {
  const [by, setBy] = useState("none");
  const workers = [...(detail.state.workers ?? [])].sort(worst);
  const ranks = detail.state.ranks ?? [];
  return (
    <div className="stack">
      <label className="inline">
        <span>Group by</span>
        <Choice label="Group by" value={by} options={[["none", "none"], ["node", "node"], ["status", "status"]]} onChange={setBy} />
      </label>
      <WorkerTiles detail={detail} by={by} />
      <Table aria-label="Workers, worst first" variant="compact">
        <Thead>
          <Tr>
            {["Worker", "Ranks", "Status", "Node", "Restarts", "Exit", "CPU", "Memory", "Reason"].map((word) => (
              <Th key={word}>{word}</Th>
            ))}
          </Tr>
        </Thead>
        <Tbody>
          {workers.map((worker) => (
            <Tr key={worker.index}>
              <Td dataLabel="Worker">{worker.name}</Td>
              <Td dataLabel="Ranks">{ranksOf(detail, worker.index).replace(/ranks? /, "") || "–"}</Td>
              <Td dataLabel="Status">
                <PhaseLabel phase={worker.phase} />
              </Td>
              <Td dataLabel="Node">{worker.node || "–"}</Td>
              <Td dataLabel="Restarts">{worker.restarts ?? 0}</Td>
              <Td dataLabel="Exit">{worker.exit_code ?? "–"}</Td>
              <Td dataLabel="CPU">{worker.cpu_cores === null || worker.cpu_cores === undefined ? "–" : worker.cpu_cores.toFixed(2)}</Td>
              <Td dataLabel="Memory">
                {bytes(worker.memory_bytes)}
                {worker.memory_limit_bytes ? ` of ${bytes(worker.memory_limit_bytes)}` : ""}
              </Td>
              <Td dataLabel="Reason" modifier="breakWord">
                {[worker.reason, worker.message].filter(Boolean).join(": ") || "–"}
              </Td>
            </Tr>
          ))}
        </Tbody>
      </Table>
      {ranks.length ? (
        <Table aria-label="Ranks" variant="compact">
          <Thead>
            <Tr>
              {["Rank", "Worker", "Node", "GPUs", "Exit"].map((word) => (
                <Th key={word}>{word}</Th>
              ))}
            </Tr>
          </Thead>
          <Tbody>
            {ranks.map((rank) => (
              <Tr key={rank.rank}>
                <Td dataLabel="Rank">{rank.rank}</Td>
                <Td dataLabel="Worker">{rank.worker}</Td>
                <Td dataLabel="Node">{rank.node || "–"}</Td>
                <Td dataLabel="GPUs">{(rank.gpus ?? []).join(", ") || "–"}</Td>
                <Td dataLabel="Exit">
                  {rank.exit_code ?? "–"}
                  {rank.followed ? " (consequence)" : ""}
                </Td>
              </Tr>
            ))}
          </Tbody>
        </Table>
      ) : null}
    </div>
  );
}
