import { forwardRef, memo, type CSSProperties, type MouseEvent } from "react";
import { Link } from "react-router-dom";
import type { LogRow } from "../api/client";
import { clock, type Zone } from "../lib/time";
import { isSerious, patternOf } from "./logQuery";
import styles from "./logs.module.css";

interface Props {
  line: LogRow;
  index: number;
  style: CSSProperties;
  find: string;
  zone: Zone;
  isCurrent: boolean;
  isWrapped: boolean;
  showsTime: boolean;
  linkTo: string;
  onLink: (line: LogRow) => void;
  /** Called with the rank of the line when its source is chosen. */
  onRank: (rank: number) => void;
}

/** One line: when, who, how serious, what. Its time is a link to it. */
export const LogLine = memo(
  forwardRef<HTMLDivElement, Props>(function LogLine({ line, index, style, find, zone, isCurrent, isWrapped, showsTime, linkTo, onLink, onRank }, ref) {
    const classes = [
      "line",
      line.level === "warning" ? "warning" : isSerious(line) ? "error" : line.stream === "stderr" ? "stderr" : "",
      isCurrent ? "current" : "",
      isWrapped ? "wrapped" : "",
      line.marks?.includes("gap") ? "gap" : "",
    ];
    const link = (event: MouseEvent): void => {
      event.preventDefault();
      onLink(line);
    };
    return (
      <div
        ref={ref}
        data-index={index}
        data-current={isCurrent || undefined}
        aria-current={isCurrent || undefined}
        className={classes.map((name) => styles[name]).filter(Boolean).join(" ")}
        style={style}
      >
        {showsTime ? (
          <>
            <Link to={linkTo} className={styles["time"]} tabIndex={-1} title="Copy link to this line" onClick={link}>
              {clock(line.time, zone)}
            </Link>{" "}
          </>
        ) : null}
        {typeof line.rank === "number" && line.source === `Rank-${line.rank}` ? ( // not of several ranks whose lines are one
          <button type="button" className={styles["source"]} tabIndex={-1} title={`Show only rank ${line.rank}`} onClick={() => onRank(line.rank ?? 0)}>
            {line.source}
          </button>
        ) : (
          <span className={styles["source"]}>{line.source}</span>
        )}{" "}
        {isSerious(line) && !saysLevel(line) ? <strong>{line.level?.toUpperCase()} </strong> : null}
        <span className={styles["text"]}>{marked(line.text, find)}</span>
      </div>
    );
  }),
);

/** Whether a line names its level itself. */
const saysLevel = ({ text, level }: LogRow): boolean => text.slice(0, 40).toUpperCase().includes(level === "warning" ? "WARN" : (level ?? "").toUpperCase());

/** The text with what was found marked; text nodes only, whatever the line holds. */
function marked(text: string, find: string) {
  const pattern = patternOf(find);
  if (!pattern) return text;
  const parts: (string | JSX.Element)[] = [];
  let at = 0;
  for (const hit of text.matchAll(pattern)) {
    if (!hit[0]) continue;
    parts.push(text.slice(at, hit.index), <mark key={hit.index}>{hit[0]}</mark>);
    at = hit.index + hit[0].length;
  }
  return [...parts, text.slice(at)];
}
