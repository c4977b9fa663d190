import ServerIcon from "@patternfly/react-icons/dist/esm/icons/server-icon";
import { Link } from "react-router-dom";
import type { JobDetail } from "../api/client";
import { PHASE_LOOKS } from "../components/PhaseLabel";
import { jobPath } from "../lib/links";
import { launcherOf } from "./launcher";
import { workerGroups, type GroupBy } from "./topology";
import { WorkerTiles } from "./WorkerTiles";
import styles from "./workers.module.css";

interface Props {
  detail: JobDetail;
  by?: GroupBy;
  /** Within a card beside others: nothing but the tiles. */
  isCompact?: boolean;
  /** How many workers are shown at most. */
  most?: number;
}

/** The launcher, and what it starts: the workers of each node, with their ranks. */
export function JobTopology({ detail, by = "node", isCompact = false, most = Infinity }: Props) {
  const groups = workerGroups(detail, by);
  const titled = groups.length > 1 || (by !== "none" && groups[0]?.title !== "Not scheduled" && groups[0]?.title !== "");
  let left = most;
  return (
    <div className={isCompact ? styles["compactTree"] : styles["tree"]} role="group" aria-label="Launcher and workers">
      <LauncherTile detail={detail} />
      <div className={styles["branches"]}>
        {groups.length ? (
          groups.map(({ title, workers }) => {
            const shown = workers.slice(0, Math.max(0, left));
            left -= shown.length;
            return shown.length ? (
              <div key={title} className={styles["branch"]}>
                {titled && title ? (
                  <h3 className={styles["node"]}>
                    {by === "node" ? <ServerIcon /> : null} {title} ({workers.length})
                  </h3>
                ) : null}
                <WorkerTiles detail={detail} workers={shown} label={title ? `Workers, ${title}` : "Workers"} />
              </div>
            ) : null;
          })
        ) : (
          <WorkerTiles detail={detail} />
        )}
      </div>
    </div>
  );
}

function LauncherTile({ detail }: { detail: JobDetail }) {
  const launcher = launcherOf(detail);
  const { icon: PhaseIcon } = PHASE_LOOKS[launcher.phase];
  const facts = [launcher.node, launcher.exitCode === null ? "" : `exit ${launcher.exitCode}`, launcher.reason];
  return (
    <Link
      to={jobPath(detail.row, "workers", { worker: "launcher" })}
      className={`${styles["tile"]} ${styles["launcher"]}`}
      title={facts.filter(Boolean).join(" · ")}
      data-worker="launcher"
    >
      <strong>
        <PhaseIcon /> Launcher
      </strong>
      <span>{launcher.phase}</span>
      <span className={styles["subtle"]}>{launcher.exitCode === null ? launcher.node || " " : `exit code ${launcher.exitCode}`}</span>
    </Link>
  );
}
