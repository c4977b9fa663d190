import { Spinner } from "@patternfly/react-core";
import { Link } from "react-router-dom";
import type { JobRow } from "../api/client";
import { useJob } from "../api/queries";
import { jobPath } from "../lib/links";
import { WorkerTiles } from "../workers/WorkerTiles";
import { LastLines } from "../logs/LastLines";
import styles from "./jobs.module.css";

const LINES = 5;

/** A job within the list: its workers and what it wrote last. */
export default function ExpandedJob({ row }: { row: JobRow }) {
  const job = useJob(row.namespace, row.name);
  return (
    <div className={styles["expanded"]} data-testid="expanded">
      {row.why ? <p>{row.why}</p> : null}
      {job.data ? <WorkerTiles detail={job.data} /> : <Spinner size="md" aria-label="Loading workers" />}
      <LastLines row={row} count={LINES} />
      <Link to={jobPath(row, "logs")}>View all logs</Link>
    </div>
  );
}
