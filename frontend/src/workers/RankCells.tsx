import type { RankCell } from "./topology";
import { phaseTone } from "./tone";
import styles from "./workers.module.css";

const MOST_CELLS = 16;

/** The ranks of a worker as squares with their numbers, and their GPUs below; what they show is said in words beside them. */
export function RankCells({ cells }: { cells: readonly RankCell[] }) {
  if (!cells.length) return null;
  const first = cells.find((cell) => cell.isFirst);
  const shown = cells.slice(0, MOST_CELLS);
  if (first && !shown.includes(first)) shown.splice(MOST_CELLS - 1, 1, first);
  return (
    <span className={styles["cells"]} aria-hidden>
      {shown.map((cell) => (
        <span key={cell.rank} title={cell.words} data-rank={cell.rank} className={`${styles["cell"]} ${styles[phaseTone(cell.phase)]} ${cell.isFirst ? styles["first"] : ""}`}>
          {cell.isFirst ? `! ${cell.rank}` : cell.rank}
          {cell.gpu ? <small>GPU {cell.gpu}</small> : null}
        </span>
      ))}
      {cells.length > shown.length ? <span className={styles["subtle"]}>+{cells.length - shown.length}</span> : null}
    </span>
  );
}
