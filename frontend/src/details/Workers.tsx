import { Button, Drawer, DrawerActions, DrawerCloseButton, DrawerContent, DrawerContentBody, DrawerHead, DrawerPanelBody, DrawerPanelContent } from "@patternfly/react-core";
import { Table, Tbody, Td, Th, Thead, Tr } from "@patternfly/react-table";
import { useQuery } from "@tanstack/react-query";
import { useEffect, useRef } from "react";
import { Link } from "react-router-dom";
import { useAsked } from "../hooks";
import { addressOf, api, take, type JobDetail, type Phase, type WorkerState } from "../api/client";
import { Choice } from "../components/Choice";
import { LOOKS, PhaseLabel } from "../components/PhaseLabel";
import { Terms } from "../components/Terms";
import { bytes, clock } from "../words";
import { Scale } from "./Scale";
import { Stacks } from "./Stacks";

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
          {title ? <h3>{`${title} (${some.length})`}</h3> : null}
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
  const more = [
    worker.node,
    worker.restarts ? `${worker.restarts} restarts` : "",
    worker.exit_code === null || worker.exit_code === undefined ? "" : `exit ${worker.exit_code}`,
    (worker.gpus ?? []).length ? `GPU ${(worker.gpus ?? []).join(", ")}` : "",
    worker.reason,
    worker.message,
  ];
  return (
    <li>
      <Link
        to={`/jobs/${detail.row.namespace}/${detail.row.name}/workers?worker=${worker.index}`}
        className={`tile tile-${color}`}
        title={more.filter(Boolean).join(" · ")}
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

/** Everything about one worker: how it is, what happened to it, where its lines are. */
function Panel({ worker, detail, onClose }: { worker: WorkerState; detail: JobDetail; onClose: () => void }) {
  const head = useRef<HTMLHeadingElement>(null);
  useEffect(() => head.current?.focus(), [worker.index]);
  const { row } = detail;
  const base = `/jobs/${row.namespace}/${row.name}`;
  const events = useQuery({
    queryKey: ["job", row.namespace, row.name, "events"],
    queryFn: () => take(api.GET("/api/v1/trainjobs/{namespace}/{name}/events", { params: addressOf(row) })),
  });
  const own = (events.data?.items ?? []).filter((one) => one.worker === worker.index);
  const ranks = (detail.state.ranks ?? []).filter((one) => one.worker === worker.index);
  return (
    <DrawerPanelContent aria-labelledby="worker-title" widths={{ default: "width_33" }}>
      <DrawerHead>
        <h3 id="worker-title" ref={head} tabIndex={-1}>
          {worker.name}
        </h3>
        <DrawerActions>
          <DrawerCloseButton onClick={onClose} aria-label="Close what is said of the worker" />
        </DrawerActions>
      </DrawerHead>
      <DrawerPanelBody className="stack close">
        <Terms
          entries={[
            ["Status", <PhaseLabel key="phase" phase={worker.phase} />],
            ["Node", worker.node || "none yet"],
            ["Ranks", ranks.map((one) => `${one.rank}${one.exit_code === null || one.exit_code === undefined ? "" : ` (exit ${one.exit_code}${one.followed ? ", a consequence" : ""})`}`).join(", ") || "–"],
            ["GPUs", (worker.gpus ?? []).join(", ") || "none"],
            ["Restarts", String(worker.restarts ?? 0)],
            ["Memory", `${bytes(worker.memory_bytes)}${worker.memory_limit_bytes ? ` of ${bytes(worker.memory_limit_bytes)}` : ""}`],
            ["Reason", [worker.reason, worker.message].filter(Boolean).join(": ") || "–"],
          ]}
        />
        <ul className="steps" aria-label={`Events of worker ${worker.index}`}>
          {own.map((one) => (
            <li key={`${one.sequence}${one.time}`}>
              <time>{clock(one.time * 1000)}</time> {one.reason}: {one.message}
            </li>
          ))}
        </ul>
        <Link to={`${base}/logs?workers=${worker.index}`}>Lines of this worker</Link>
        <Link to={`${base}/metrics`}>Metrics</Link>
      </DrawerPanelBody>
    </DrawerPanelContent>
  );
}

export function Workers({ detail }: { detail: JobDetail }) {
  const [params, ask] = useAsked();
  const by = params.get("by") ?? "none";
  const set = (key: string, value: string): void =>
    ask((next) => {
      if (value) next.set(key, value);
      else next.delete(key);
    });
  const workers = [...(detail.state.workers ?? [])].sort(worst);
  const chosen = workers.find((one) => String(one.index) === params.get("worker"));
  const ranks = detail.state.ranks ?? [];
  const close = (): void => {
    set("worker", "");
    window.setTimeout(() => document.querySelector<HTMLElement>(`a[href$="worker=${chosen?.index ?? 0}"]`)?.focus(), 0);
  };
  return (
    <Drawer isExpanded={Boolean(chosen)} isInline>
      <DrawerContent panelContent={chosen ? <Panel worker={chosen} detail={detail} onClose={close} /> : null}>
        <DrawerContentBody className="stack">
          <Scale detail={detail} />
          <Stacks detail={detail} />
          <label className="inline">
            <span>Group by</span>
            <Choice label="Group by" value={by} options={[["none", "none"], ["node", "node"], ["status", "status"]]} onChange={(value) => set("by", value)} />
          </label>
          <WorkerTiles detail={detail} by={by} />
          <div className="wide">
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
                  <Td dataLabel="Worker">
                    <Button variant="link" isInline onClick={() => set("worker", String(worker.index))}>
                      worker {worker.index}
                    </Button>
                  </Td>
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
          </div>
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
        </DrawerContentBody>
      </DrawerContent>
    </Drawer>
  );
}
