import type { JobDetail, Phase } from "../api/client";
import { rankCells, type RankCell } from "./topology";
import { phaseTone } from "./tone";
import styles from "./workers.module.css";

const MOST_CELLS = 16;

/** The ranks of a worker as squares: with their numbers and GPUs, or small where there are many workers; the worker says the same in words. */
export function RankCells({ cells, isSmall }: { cells: readonly RankCell[]; isSmall: boolean }) {
  if (!cells.length) return null;
  const first = cells.find((cell) => cell.isFirst);
  const shown = cells.slice(0, MOST_CELLS);
  if (first && !shown.includes(first)) shown.splice(MOST_CELLS - 1, 1, first);
  return (
    <span className={styles["cells"]} aria-hidden>
      {shown.map((cell) => (
        <span key={cell.rank} title={cell.words} data-rank={cell.rank} className={[isSmall ? styles["square"] : styles["cell"], styles[phaseTone(cell.phase)], cell.isFirst ? styles["firstCell"] : ""].join(" ")}>
          {isSmall ? "" : cell.isFirst ? `! ${cell.rank}` : cell.rank}
          {cell.gpu && !isSmall ? <small>GPU {cell.gpu}</small> : null}
        </span>
      ))}
      {cells.length > shown.length ? <span className={styles["subtle"]}>+{cells.length - shown.length}</span> : null}
    </span>
  );
}

/** What the squares of a picture mean: the phases that are in it. */
export function RankLegend({ detail }: { detail: JobDetail }) {
  const cells = (detail.state.workers ?? []).flatMap((worker) => rankCells(detail, worker));
  const phases = [...new Set<Phase>(cells.map(({ phase }) => phase))];
  if (!phases.length) return null;
  return (
    <div className={styles["legend"]}>
      <span>Each square is a rank:</span>
      <ul aria-label="Ranks in the picture">
        {phases.map((phase) => (
          <li key={phase}>
            <span className={`${styles["square"]} ${styles[phaseTone(phase)]}`} aria-hidden /> {phase} ({cells.filter((cell) => cell.phase === phase).length})
          </li>
        ))}
        {cells.some(({ isFirst }) => isFirst) ? (
          <li>
            <span className={`${styles["square"]} ${styles["danger"]} ${styles["firstCell"]}`} aria-hidden /> the failure began here
          </li>
        ) : null}
      </ul>
    </div>
  );
}
