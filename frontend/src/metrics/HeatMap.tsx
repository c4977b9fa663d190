import { useEffect, useRef, useState, type MouseEvent } from "react";
import { useIsDark } from "../shell/theme";
import { heatLevel } from "./heat";
import styles from "./metrics.module.css";

interface Props {
  label: string;
  /** The names of the rows, from above. */
  rows: readonly string[];
  columns: number;
  /** The value of a cell, null where there is none. */
  value: (row: number, column: number) => number | null;
  /** The value of the darkest cell. */
  most: number;
  /** The same in words: the end of the scale below the map. */
  mostLabel: string;
  /** The names of the columns, where they are few. */
  columnNames?: readonly string[];
  /** What a cell is, in words. */
  describe: (row: number, column: number, value: number) => string;
  rowHeight?: number;
}

const LABEL_PX = 88;
const MOST_PX = 640;
const MOST_NAMED = 32;

/** Values as colours, from pale to dark: rows of ranks or workers over time, or over one another. */
export function HeatMap({ label, rows, columns, value, most, mostLabel, columnNames = [], describe, rowHeight = 18 }: Props) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const dark = useIsDark();
  const [cell, setCell] = useState("");
  const height = Math.min(MOST_PX, Math.max(1, rows.length) * rowHeight);
  useEffect(() => {
    const target = canvas.current;
    const drawing = target?.getContext("2d");
    if (!target || !drawing) return undefined;
    const draw = (): void => {
      const scale = window.devicePixelRatio || 1;
      const [width, tall] = [target.clientWidth, height];
      target.width = Math.max(1, Math.round(width * scale));
      target.height = Math.round(tall * scale);
      drawing.scale(scale, scale);
      const style = getComputedStyle(target);
      const [pale, strong] = [style.getPropertyValue("--heat-low"), style.getPropertyValue("--heat-high")];
      const [cellWidth, cellHeight] = [width / Math.max(1, columns), tall / Math.max(1, rows.length)];
      for (let row = 0; row < rows.length; row += 1)
        for (let column = 0; column < columns; column += 1) {
          const amount = value(row, column);
          if (amount === null) continue;
          drawing.fillStyle = pale;
          drawing.globalAlpha = 1;
          drawing.fillRect(column * cellWidth, row * cellHeight, Math.ceil(cellWidth), Math.max(1, cellHeight - 1));
          drawing.fillStyle = strong;
          drawing.globalAlpha = heatLevel(amount, most);
          drawing.fillRect(column * cellWidth, row * cellHeight, Math.ceil(cellWidth), Math.max(1, cellHeight - 1));
        }
    };
    draw();
    const resize = new ResizeObserver(draw);
    resize.observe(target);
    return () => resize.disconnect();
  }, [rows, columns, value, most, height, dark]);
  const look = (event: MouseEvent<HTMLCanvasElement>): void => {
    const area = event.currentTarget.getBoundingClientRect();
    const row = Math.floor(((event.clientY - area.top) / area.height) * rows.length);
    const column = Math.floor(((event.clientX - area.left) / area.width) * columns);
    const amount = value(row, column);
    setCell(amount === null ? "" : describe(row, column, amount));
  };
  const every = Math.max(1, Math.ceil(rows.length / (height / 14)));
  return (
    <div>
      <div className={styles["heat"]} style={{ gridTemplateColumns: `${LABEL_PX}px minmax(0, 1fr)` }}>
        <div className={styles["heatLabels"]} style={{ blockSize: height }} aria-hidden>
          {rows.map((name, index) => (
            <span key={name} style={{ visibility: index % every ? "hidden" : "visible" }}>
              {name}
            </span>
          ))}
        </div>
        <canvas ref={canvas} className={styles["heatCanvas"]} style={{ blockSize: height }} role="img" aria-label={label} onMouseMove={look} onMouseLeave={() => setCell("")} />
      </div>
      {columnNames.length && columnNames.length <= MOST_NAMED ? (
        <div className={styles["heatColumns"]} style={{ marginInlineStart: LABEL_PX }} aria-hidden>
          {columnNames.map((name) => (
            <span key={name}>{name}</span>
          ))}
        </div>
      ) : null}
      <div className={styles["heatCell"]}>
        <span className={styles["heatScale"]} aria-hidden>
          0 <span className={styles["heatRamp"]} /> {mostLabel}
        </span>
        {cell}
      </div>
    </div>
  );
}
