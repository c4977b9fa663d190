import { Drawer, DrawerContent, DrawerContentBody, Flex, FlexItem } from "@patternfly/react-core";
import { lazy, Suspense } from "react";
import { Link } from "react-router-dom";
import type { JobDetail, NodePlace } from "../api/client";
import { useNodePlaces } from "../api/queries";
import { SelectMenu } from "../components/SelectMenu";
import { Section } from "../components/Section";
import { useJobPage } from "../job/context";
import { useQueryParams } from "../lib/hooks";
import { jobPath } from "../lib/links";
import { JobTopology } from "./JobTopology";
import { RankLegend } from "./RankCells";
import { Scale } from "./Scale";
import { Stacks } from "./Stacks";
import { firstCause, hasGroups, nodesOf, type GroupBy } from "./topology";
import { LauncherPanel, WorkerPanel } from "./WorkerPanel";
import { WorkersTable } from "./WorkersTable";
import styles from "./workers.module.css";

const Communication = lazy(() => import("./Communication"));

const GROUPS = [
  { value: "node", label: "Node" },
  { value: "group", label: "Group" },
  { value: "status", label: "Status" },
  { value: "none", label: "None" },
] as const;

const NO_NODES: readonly NodePlace[] = [];

/** Launcher, workers and ranks: as a picture with their use, each with a panel, and as a table, the worst first. */
export default function WorkersTab() {
  const { detail, row } = useJobPage();
  const nodes = useNodePlaces(row, nodesOf(detail)).data?.items ?? NO_NODES;
  const [params, edit] = useQueryParams();
  const by = (params.get("by") ?? "node") as GroupBy;
  const chosen = params.get("worker");
  const set = (key: string, value: string): void =>
    edit((query) => {
      if (value) query.set(key, value);
      else query.delete(key);
    });
  const worker = (detail.state.workers ?? []).find((one) => String(one.index) === chosen);
  const close = (): void => {
    set("worker", "");
    window.setTimeout(() => document.querySelector<HTMLElement>(`[data-worker="${chosen}"]`)?.focus(), 0);
  };
  const panel = chosen === "launcher" ? <LauncherPanel onClose={close} /> : worker ? <WorkerPanel worker={worker} onClose={close} /> : null;
  return (
    <Drawer isExpanded={panel !== null} isInline>
      <DrawerContent panelContent={panel}>
        <DrawerContentBody className={`${styles["column"]} ${panel ? styles["beside"] : ""}`}>
          <Scale />
          <Section
            title="Launcher and workers"
            actions={
              <Flex alignItems={{ default: "alignItemsCenter" }}>
                <FlexItem>
                  <SelectMenu label="Group by" showsLabel size="sm" value={by} options={GROUPS.filter(({ value }) => value !== "group" || hasGroups(detail))} onChange={(value) => set("by", value === "node" ? "" : value)} />
                </FlexItem>
              </Flex>
            }
          >
            <FirstCause detail={detail} />
            <JobTopology detail={detail} by={by} nodes={nodes} />
            <RankLegend detail={detail} />
          </Section>
          <Stacks isAsked={params.get("stacks") === "true"} />
          <Suspense fallback={null}>
            <Communication />
          </Suspense>
          <WorkersTable nodes={nodes} onWorker={(index) => set("worker", String(index))} />
        </DrawerContentBody>
      </DrawerContent>
    </Drawer>
  );
}

/** Where the failure began, before a picture that may be long. */
function FirstCause({ detail }: { detail: JobDetail }) {
  const cause = firstCause(detail);
  if (!cause) return null;
  const { worker, rank, node } = cause;
  return (
    <p className={styles["cause"]} data-testid="first-cause">
      The failure began at <Link to={jobPath(detail.row, "workers", { worker })}>worker {worker}</Link>
      {rank === null ? "" : `, rank ${rank}`}
      {node ? `, on node ${node}` : ""}.
    </p>
  );
}
