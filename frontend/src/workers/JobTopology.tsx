import ServerIcon from "@patternfly/react-icons/dist/esm/icons/server-icon";
import type { ReactNode } from "react";
import { Link } from "react-router-dom";
import type { JobDetail, NodePlace, WorkerState } from "../api/client";
import { PHASE_LOOKS } from "../components/PhaseLabel";
import { plural } from "../lib/format";
import { jobPath } from "../lib/links";
import { launcherOf } from "./launcher";
import { phaseTone } from "./tone";
import { placeName, placesOf, workerGroups, type GroupBy } from "./topology";
import { WorkerTiles } from "./WorkerTiles";
import styles from "./workers.module.css";

const DENSE_FROM = 24; // workers

interface Props {
  detail: JobDetail;
  by?: GroupBy;
  /** Within a card beside others: nothing but the tiles. */
  isCompact?: boolean;
  /** How many workers are shown at most. */
  most?: number;
  /** Where the nodes stand. */
  nodes?: readonly NodePlace[];
}

/** The launcher, and what it starts: zones and racks as far as they are known, in them nodes, workers and ranks. */
export function JobTopology({ detail, by = "node", isCompact = false, most = Infinity, nodes = [] }: Props) {
  const groups = workerGroups(detail, by);
  const titled = groups.length > 1 || (by !== "none" && groups[0]?.title !== "Not scheduled" && groups[0]?.title !== "");
  let left = most;
  const shown = groups.flatMap(({ title, workers }) => {
    const some = workers.slice(0, Math.max(0, left));
    left -= some.length;
    return some.length ? [{ title, workers: some }] : [];
  });
  const isDense = !isCompact && (detail.state.workers ?? []).length > DENSE_FROM;
  const ranks = isCompact ? "none" : isDense ? "small" : "numbers";
  const counts = new Map(groups.map(({ title, workers }) => [title, workers.length]));
  return (
    <div className={isCompact ? styles["compactTree"] : `${styles["tree"]} ${isDense ? styles["dense"] : ""}`} role="group" aria-label="Launcher and workers">
      <LauncherTile detail={detail} />
      <div className={styles["branches"]}>
        {groups.length ? (
          placesOf(shown, by === "node" ? nodes : []).map((place) => (
            <PlaceBox key={placeName(place)} name={placeName(place)}>
              {place.groups.map(({ title, workers }) => (
                <div key={title} className={styles["branch"]}>
                  {titled && title ? (
                    <h3 className={styles["node"]}>
                      {by === "node" ? <ServerIcon /> : null} {title} ({counts.get(title)}){by === "node" && !isDense ? gpuText(workers) : ""}
                    </h3>
                  ) : null}
                  <WorkerTiles detail={detail} workers={workers} label={title ? `Workers, ${title}` : "Workers"} ranks={ranks} />
                </div>
              ))}
            </PlaceBox>
          ))
        ) : (
          <WorkerTiles detail={detail} />
        )}
      </div>
    </div>
  );
}

/** A zone or rack around its nodes; only the nodes where neither is known. */
function PlaceBox({ name, children }: { name: string; children: ReactNode }) {
  if (!name) return <div className={styles["nodes"]}>{children}</div>;
  return (
    <div className={styles["place"]} role="group" aria-label={name}>
      <span className={styles["placeName"]}>{name}</span>
      <div className={styles["nodes"]}>{children}</div>
    </div>
  );
}

/** The GPUs that workers hold on a node. */
function gpuText(workers: readonly WorkerState[]): string {
  const count = new Set(workers.flatMap((worker) => worker.gpus ?? [])).size;
  return count ? ` · ${plural(count, "GPU")}` : "";
}

function LauncherTile({ detail }: { detail: JobDetail }) {
  const launcher = launcherOf(detail);
  const { icon: PhaseIcon } = PHASE_LOOKS[launcher.phase];
  const facts = [launcher.node, launcher.exitCode === null ? "" : `exit ${launcher.exitCode}`, launcher.reason];
  return (
    <Link
      to={jobPath(detail.row, "workers", { worker: "launcher" })}
      className={`${styles["tile"]} ${styles["launcher"]} ${styles[phaseTone(launcher.phase)]}`}
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
