import { Alert, DrawerActions, DrawerCloseButton, DrawerHead, DrawerPanelBody, DrawerPanelContent, Flex, Title } from "@patternfly/react-core";
import { Fragment, useEffect, useRef, type ReactNode } from "react";
import { Link } from "react-router-dom";
import type { WorkerState } from "../api/client";
import { useDiagnosis, useEvents } from "../api/queries";
import { Details } from "../components/Details";
import { PhaseLabel } from "../components/PhaseLabel";
import { Time } from "../components/Time";
import { UtilizationBar } from "../components/UtilizationBar";
import { useApplyFix } from "../job/applyFix";
import { useJobPage } from "../job/context";
import { FixList } from "../job/FixList";
import { bytes, capitalized, decimal } from "../lib/format";
import { LastLines } from "../logs/LastLines";
import { launcherOf } from "./launcher";
import { nodeOf, rankExits, workerReason } from "./topology";
import styles from "./workers.module.css";

const LINES = 20;

interface PanelProps {
  title: string;
  /** Changes when the panel shows something else: its heading gets the focus. */
  subject: string;
  closeLabel: string;
  onClose: () => void;
  children: ReactNode;
}

function Panel({ title, subject, closeLabel, onClose, children }: PanelProps) {
  return (
    <DrawerPanelContent aria-labelledby="panel-title" widths={{ default: "width_100", lg: "width_50", "2xl": "width_33" }}>
      <DrawerHead>
        <PanelTitle key={subject} title={title} />
        <DrawerActions>
          <DrawerCloseButton onClick={onClose} aria-label={closeLabel} />
        </DrawerActions>
      </DrawerHead>
      <DrawerPanelBody className={styles["column"]}>{children}</DrawerPanelBody>
    </DrawerPanelContent>
  );
}

/** The panel's content comes after the panel itself: its heading takes the focus when it is there. */
function PanelTitle({ title }: { title: string }) {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => heading.current?.focus(), []);
  return (
    <h2 className={`pf-v6-c-title pf-m-lg ${styles["panelTitle"]}`} id="panel-title" ref={heading} tabIndex={-1}>
      {title}
    </h2>
  );
}

/** One worker: how it is and why, what it used of its limit, what to do, what happened, and its last lines. */
export function WorkerPanel({ worker, onClose }: { worker: WorkerState; onClose: () => void }) {
  const { detail, row, path } = useJobPage();
  const events = (useEvents(row).data?.items ?? []).filter((event) => event.worker === worker.index);
  const reason = workerReason(detail, worker);
  const failed = worker.phase === "Failed";
  const finding = (detail.state.findings ?? []).find((one) => one.worker === worker.index);
  const diagnosis = useDiagnosis(row, row.phase === "Failed").data;
  const applyFix = useApplyFix(detail);
  const { memory_bytes: memory, memory_limit_bytes: limit } = worker;
  return (
    <Panel title={worker.name} subject={worker.name} closeLabel="Close worker details" onClose={onClose}>
      {reason && failed ? <Alert variant="danger" isInline component="h3" title={reason} /> : null}
      {memory && limit ? <UtilizationBar label="Peak memory" used={memory} total={limit} format={bytes} /> : null}
      {finding && failed ? <FixList fixes={(diagnosis?.fixes ?? []).filter((fix) => fix.code === finding.code)} hint={finding.hint ?? ""} onApply={applyFix.ask} /> : null}
      <Details
        isHorizontal
        entries={[
          ["Status", <PhaseLabel key="phase" phase={worker.phase} isCompact />],
          ["Group", worker.group ?? ""],
          ["Node", nodeOf(worker, detail.state.ranks ?? []) || "Not scheduled"],
          ["Ranks", <RankLinks key="ranks" worker={worker.index} />],
          ["GPUs", (worker.gpus ?? []).join(", ") || "None"],
          ["CPU", worker.cpu_cores === null || worker.cpu_cores === undefined ? "" : `${decimal(worker.cpu_cores)} cores`],
          ["Memory", memory && !limit ? bytes(memory) : ""],
          ["Restarts", String(worker.restarts ?? 0)],
          ["Reason", failed ? "" : reason],
        ]}
      />
      <Title headingLevel="h3" size="md">Last lines</Title>
      <LastLines row={row} count={LINES} worker={worker.index} />
      {events.length ? (
        <>
          <Title headingLevel="h3" size="md">Events</Title>
          <ul className={styles["events"]} aria-label={`Events of worker ${worker.index}`}>
            {events.map((event) => (
              <li key={`${event.sequence}${event.time}`}>
                <Time at={event.time} format="second" /> {event.reason}: {event.message}
              </li>
            ))}
          </ul>
        </>
      ) : null}
      <Flex>
        <Link to={path("logs", { workers: worker.index })}>View logs</Link>
        <Link to={path("metrics", { usage: "workers" })}>View metrics</Link>
      </Flex>
      {applyFix.dialog}
    </Panel>
  );
}

/** The ranks of a worker with their ends; each opens the log of that rank. */
function RankLinks({ worker }: { worker: number }) {
  const { detail, path } = useJobPage();
  const ranks = rankExits(detail, worker);
  if (!ranks.length) return "–";
  return ranks.map(({ rank, text }, index) => (
    <Fragment key={rank}>
      {index ? ", " : ""}
      <Link to={path("logs", { ranks: rank })} title={`Logs of rank ${rank}`}>
        {text}
      </Link>
    </Fragment>
  ));
}

/** The launcher: it starts the ranks and waits for them. */
export function LauncherPanel({ onClose }: { onClose: () => void }) {
  const { detail, path } = useJobPage();
  const launcher = launcherOf(detail);
  const { launcher: resources } = detail.spec;
  return (
    <Panel title="Launcher" subject="launcher" closeLabel="Close launcher details" onClose={onClose}>
      <Details
        isHorizontal
        entries={[
          ["Status", <PhaseLabel key="phase" phase={launcher.phase} isCompact />],
          ["Node", launcher.node],
          ["Exit code", launcher.exitCode === null ? "" : String(launcher.exitCode)],
          ["Restarts", launcher.restarts ? String(launcher.restarts) : ""],
          ["CPU", launcher.cores === null ? String(resources?.cpu ?? "") : `${decimal(launcher.cores)} cores`],
          ["Memory", launcher.memoryBytes ? `${bytes(launcher.memoryBytes)}${launcher.memoryLimitBytes ? ` of ${bytes(launcher.memoryLimitBytes)}` : ""}` : String(resources?.memory ?? "")],
          ["GPUs", launcher.gpus.join(", ")],
          ["Reason", capitalized(launcher.reason)],
        ]}
      />
      <Link to={path("logs", { role: "launcher" })}>View logs</Link>
    </Panel>
  );
}
