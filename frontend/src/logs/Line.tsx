import { forwardRef, memo, type CSSProperties } from "react";
import type { LogRow } from "../api/client";
import { clock } from "../words";

const SERIOUS = new Set<string>(["warning", "error", "fatal"]);

interface Props {
  line: LogRow;
  index: number;
  style: CSSProperties;
  found: string;
  current: boolean;
  wrap: boolean;
  onLink: (line: LogRow) => void;
}

/** One line: when, who, how serious, what. Its time is a link to it. */
export const Line = memo(
  forwardRef<HTMLDivElement, Props>(function Line({ line, index, style, found, current, wrap, onLink }, ref) {
    const classes = [
      "line",
      `line-${line.level ?? "plain"}`,
      line.stream === "stderr" ? "line-stderr" : "",
      current ? "line-current" : "",
      wrap ? "line-wrap" : "",
      line.marks?.includes("gap") ? "line-gap" : "",
    ];
    return (
      <div ref={ref} data-index={index} className={classes.filter(Boolean).join(" ")} style={style} aria-current={current || undefined}>
        <a
          href={`?line=${line.at}`}
          className="line-time"
          tabIndex={-1}
          title="Link to this line"
          onClick={(event) => {
            event.preventDefault();
            onLink(line);
          }}
        >
          {clock(line.time)}
        </a>{" "}
        <span className="line-source">{line.source}</span>{" "}
        {SERIOUS.has(line.level ?? "") ? <strong className="line-level">{line.level?.toUpperCase()} </strong> : null}
        <span className="line-text">{marked(line.text, found)}</span>
      </div>
    );
  }),
);

/** What is looked for: the words as they are, or /a regular expression/. */
export function pattern(wanted: string): RegExp | null {
  const slashed = /^\/(.+)\/$/.exec(wanted);
  if (!wanted) return null;
  try {
    return new RegExp(slashed ? (slashed[1] ?? "") : wanted.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "gi");
  } catch {
    return null;
  }
}

/** The text with what was found marked; text nodes only, whatever the line holds. */
function marked(text: string, found: string) {
  const wanted = pattern(found);
  if (!wanted) return text;
  const parts: (string | JSX.Element)[] = [];
  let at = 0;
  for (const hit of text.matchAll(wanted)) {
    if (!hit[0]) continue;
    parts.push(text.slice(at, hit.index), <mark key={hit.index}>{hit[0]}</mark>);
    at = hit.index + hit[0].length;
  }
  return [...parts, text.slice(at)];
}
