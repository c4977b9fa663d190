import { Spinner } from "@patternfly/react-core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router-dom";
import { api, streamLogs, take, type JobRow, type LogRow } from "../api/client";
import { WorkerTiles } from "../details/Workers";
import { clock } from "../words";

const LINES = 5;

/** The last lines of a job, once. */
export async function lastLines(row: JobRow, count: number): Promise<LogRow[]> {
  const lines: LogRow[] = [];
  const base = `/api/v1/trainjobs/${row.namespace}/${row.name}/logs`;
  await streamLogs(`${base}?tail=${count}&tidy=true`, new AbortController().signal, (batch) => lines.push(...(batch.lines ?? [])));
  return lines.slice(-count);
}

export function LastLines({ row, count }: { row: JobRow; count: number }) {
  const lines = useQuery({
    queryKey: ["job", row.namespace, row.name, "last", row.phase, count],
    queryFn: () => lastLines(row, count),
    refetchInterval: row.phase === "Running" ? 5000 : false,
  });
  if (!lines.data) return null;
  if (!lines.data.length) return <p className="under">It has written nothing yet.</p>;
  return (
    <pre className="exactly" tabIndex={0} aria-label={`Last lines of ${row.name}`}>
      {lines.data.map((line) => `${clock(line.time)} ${line.source} ${line.text}`).join("\n")}
    </pre>
  );
}

/** A look at a job without leaving the list: its workers and what it wrote last. */
export function Peek({ row }: { row: JobRow }) {
  const { namespace, name } = row;
  const job = useQuery({
    queryKey: ["job", namespace, name],
    queryFn: () => take(api.GET("/api/v1/trainjobs/{namespace}/{name}", { params: { path: { namespace, name } } })),
  });
  return (
    <div className="peek">
      {job.data ? <WorkerTiles detail={job.data} /> : <Spinner size="md" aria-label="Looking" />}
      <LastLines row={row} count={LINES} />
      <Link to={`/jobs/${namespace}/${name}/logs`}>All lines of {name}</Link>
    </div>
  );
}
