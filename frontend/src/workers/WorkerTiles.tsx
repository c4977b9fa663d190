import { Link } from "react-router-dom";
import type { JobDetail, WorkerState } from "../api/client";
import { PHASE_LOOKS } from "../components/PhaseLabel";
import { bytes, plural } from "../lib/format";
import { jobPath } from "../lib/links";
import { RankCells } from "./RankCells";
import { phaseTone } from "./tone";
import { isFirstCause, rankCells, rankSpan, workerReason } from "./topology";
import styles from "./workers.module.css";

/** Squares with numbers and GPUs, small ones, or none. */
export type RankLook = "numbers" | "small" | "none";

interface Props {
  detail: JobDetail;
  workers?: readonly WorkerState[];
  label?: string;
  /** How the ranks of a worker are drawn. */
  ranks?: RankLook;
}

/** One tile for each worker: shape, word and colour say how it is; a list of links, so that everybody can walk it. */
export function WorkerTiles({ detail, workers = detail.state.workers ?? [], label = "Workers", ranks = "none" }: Props) {
  if (!detail.state.workers?.length) return <p>Waiting for {plural(detail.row.workers, "worker")} to start.</p>;
  return (
    <ul className={styles["tiles"]} aria-label={label}>
      {workers.map((worker) => (
        <li key={worker.index}>
          <WorkerTile worker={worker} detail={detail} ranks={ranks} />
        </li>
      ))}
    </ul>
  );
}

const ALMOST_FULL = 0.9;

function WorkerTile({ worker, detail, ranks }: { worker: WorkerState; detail: JobDetail; ranks: RankLook }) {
  const { icon: PhaseIcon } = PHASE_LOOKS[worker.phase];
  const isFirst = isFirstCause(detail, worker.index);
  const { memory_bytes: memory, memory_limit_bytes: limit } = worker;
  const share = memory && limit ? memory / limit : null;
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
      {isFirst ? <strong>{worker.phase} first</strong> : <span>{worker.phase}</span>}
      <span className={ranks === "numbers" ? "pf-v6-screen-reader" : styles["subtle"]}>{rankSpan(detail, worker.index) || " "}</span>
      {ranks === "none" ? null : <RankCells cells={rankCells(detail, worker)} isSmall={ranks === "small"} />}
      {share === null || ranks === "small" ? null : (
        <svg className={styles["meter"]} viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden>
          <rect width={100 * Math.min(1, share)} height="4" className={styles[share > 1 ? "meterOver" : share >= ALMOST_FULL ? "meterHigh" : "meterFill"]} />
        </svg>
      )}
      {share === null ? null : <span className="pf-v6-screen-reader">{`, memory ${Math.round(100 * share)}% of the limit`}</span>}
    </Link>
  );
}
