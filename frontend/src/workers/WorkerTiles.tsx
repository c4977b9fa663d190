import { Link } from "react-router-dom";
import type { JobDetail, WorkerState } from "../api/client";
import { PHASE_LOOKS } from "../components/PhaseLabel";
import { bytes, plural } from "../lib/format";
import { jobPath } from "../lib/links";
import { RankCells } from "./RankCells";
import { phaseTone } from "./tone";
import { isFirstCause, rankCells, rankSpan, workerReason } from "./topology";
import styles from "./workers.module.css";

interface Props {
  detail: JobDetail;
  workers?: readonly WorkerState[];
  label?: string;
  /** With a square for each rank. */
  hasRanks?: boolean;
}

/** One tile for each worker: shape, word and colour say how it is; a list of links, so that everybody can walk it. */
export function WorkerTiles({ detail, workers = detail.state.workers ?? [], label = "Workers", hasRanks = false }: Props) {
  if (!detail.state.workers?.length) return <p>Waiting for {plural(detail.row.workers, "worker")} to start.</p>;
  return (
    <ul className={styles["tiles"]} aria-label={label}>
      {workers.map((worker) => (
        <li key={worker.index}>
          <WorkerTile worker={worker} detail={detail} hasRanks={hasRanks} />
        </li>
      ))}
    </ul>
  );
}

function WorkerTile({ worker, detail, hasRanks }: { worker: WorkerState; detail: JobDetail; hasRanks: boolean }) {
  const { icon: PhaseIcon } = PHASE_LOOKS[worker.phase];
  const isFirst = isFirstCause(detail, worker.index);
  const { memory_bytes: memory, memory_limit_bytes: limit } = worker;
  const share = memory && limit ? Math.min(1, memory / limit) : null;
  const facts = [
    worker.node,
    worker.restarts ? plural(worker.restarts, "restart") : "",
    worker.exit_code === null || worker.exit_code === undefined ? "" : `exit ${worker.exit_code}`,
    (worker.gpus ?? []).length ? `GPU ${(worker.gpus ?? []).join(", ")}` : "",
    memory ? `${bytes(memory)}${limit ? ` of ${bytes(limit)}` : ""}` : "",
    workerReason(detail, worker),
  ];
  return (
    <Link
      to={jobPath(detail.row, "workers", { worker: worker.index })}
      className={`${styles["tile"]} ${styles[phaseTone(worker.phase)]} ${isFirst ? styles["first"] : ""}`}
      title={facts.filter(Boolean).join(" · ")}
      data-worker={worker.index}
    >
      <strong>
        <PhaseIcon /> Worker {worker.index}
      </strong>
      <span>{isFirst ? `${worker.phase} first` : worker.phase}</span>
      <span className={hasRanks ? "pf-v6-screen-reader" : styles["subtle"]}>{rankSpan(detail, worker.index) || " "}</span>
      {hasRanks ? <RankCells cells={rankCells(detail, worker)} /> : null}
      {share === null ? null : (
        <svg className={styles["meter"]} viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden>
          <rect width={100 * share} height="4" className={share >= 0.9 ? styles["meterHigh"] : styles["meterFill"]} />
        </svg>
      )}
      {share === null ? null : <span className="pf-v6-screen-reader">{`, memory ${Math.round(100 * share)}% of the limit`}</span>}
    </Link>
  );
}
