import { Skeleton } from "@patternfly/react-core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router-dom";
import { jobKey, streamLogLines, type JobRow, type LogRow } from "../api/client";
import { refetchedOn } from "../api/refetch";
import { jobPath } from "../lib/links";
import { clockSeconds } from "../lib/time";
import { usePreferences } from "../shell/preferences";
import styles from "./logs.module.css";

const POLL_MS = 5000;

async function lastLines(row: JobRow, count: number, worker?: number): Promise<LogRow[]> {
  const lines: LogRow[] = [];
  const query = new URLSearchParams({ tail: String(count), tidy: "true", ...(row.uid.includes("/") ? {} : { uid: row.uid }), ...(row.shownAttempt ? { attempt: String(row.shownAttempt) } : {}) });
  if (worker !== undefined) query.set("workers", String(worker));
  await streamLogLines(`/api/v1/trainjobs/${row.namespace}/${row.name}/logs?${query}`, new AbortController().signal, (batch) =>
    lines.push(...(batch.lines ?? [])),
  );
  return lines.slice(-count);
}

interface Props {
  row: JobRow;
  count: number;
  /** Whether the rank of a line opens the log of that rank. */
  linkRanks?: boolean;
  /** Only the lines of one worker. */
  worker?: number;
}

/** The last lines of a job, without the log around them. */
export function LastLines({ row, count, linkRanks = false, worker }: Props) {
  const { zone } = usePreferences();
  const lines = useQuery({
    ...refetchedOn([...jobKey(row, "last"), count, worker], row.phase),
    queryFn: () => lastLines(row, count, worker),
    refetchInterval: row.phase === "Running" ? POLL_MS : false,
  });
  if (lines.error) return null;
  if (!lines.data) return <Skeleton height="6rem" screenreaderText="Loading the last lines" />;
  if (!lines.data.length) return <p>No output yet.</p>;
  return (
    <div className={styles["last"]} tabIndex={0} role="region" aria-label={`Last lines of ${row.name}`}>
      {lines.data.map((line, index) => (
        <div key={`${line.at}${index}`} className={styles["lastLine"]}>
          <span className={styles["subtle"]}>{clockSeconds(line.time, zone)}</span>{" "}
          {linkRanks && line.rank !== null && line.rank !== undefined ? (
            <Link to={jobPath(row, "logs", { ranks: line.rank })} title={`Logs of rank ${line.rank}`}>
              {line.source}
            </Link>
          ) : (
            <span className={styles["subtle"]}>{line.source}</span>
          )}{" "}
          {line.text}
        </div>
      ))}
    </div>
  );
}
