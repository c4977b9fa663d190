import { Card, CardBody, CardTitle, Icon } from "@patternfly/react-core";
import ExclamationTriangleIcon from "@patternfly/react-icons/dist/esm/icons/exclamation-triangle-icon";
import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Link } from "react-router-dom";
import { api, unwrap, type Finding } from "../api/client";
import { useDiagnosis } from "../api/queries";
import { Details } from "../components/Details";
import { PHASE_LOOKS } from "../components/PhaseLabel";
import { basisText, startText } from "../lib/estimate";
import { capitalized, duration, plural } from "../lib/format";
import { isNotResponding } from "../lib/phases";
import { useApplyFix } from "./applyFix";
import { useJobPage } from "./context";
import { Cause } from "./FailureCard";
import { FixList } from "./FixList";
import styles from "./job.module.css";

/** Where a job stands that has not failed: waiting, starting, suspended, stopped, or running with a warning. */
export function StatusCard() {
  const { row, detail } = useJobPage();
  const warned = row.phase === "Running" && Boolean(detail.state.findings?.length);
  switch (row.phase) {
    case "Queued":
      return <Queued />;
    case "Pending":
    case "Initializing":
      return <Neutral title="Starting">{capitalized(row.why) || "The workers are starting."}</Neutral>;
    case "Suspended":
      return (
        <Neutral title="Suspended">
          The processes are stopped and their resources released. When you resume the job, it starts again from its last checkpoint.
        </Neutral>
      );
    case "Cancelled":
      return <Neutral title="Cancelled">The job was stopped before it finished. Its logs and history are kept.</Neutral>;
    case "Running":
      return warned ? <Warnings findings={detail.state.findings ?? []} /> : null;
    case "Succeeded":
      return <Succeeded />;
    default:
      return null;
  }
}

function Neutral({ title, children }: { title: string; children: ReactNode }) {
  const { row } = useJobPage();
  const PhaseIcon = PHASE_LOOKS[row.phase].icon;
  return (
    <Card component="section" aria-label={title} data-testid="status-card">
      <CardTitle component="h2">
        <Icon isInline className={styles["titleIcon"] ?? ""}>
          <PhaseIcon />
        </Icon>
        {title}
      </CardTitle>
      <CardBody className={styles["column"]}>{children}</CardBody>
    </Card>
  );
}

/** What a job waits for: its position, what is ahead, and when it may start. */
function Queued() {
  const { detail, row } = useJobPage();
  const { state } = detail;
  const diagnosis = useDiagnosis(row, true).data;
  const applyFix = useApplyFix(detail);
  const queue = useQuery({
    queryKey: ["queues", row.namespace],
    queryFn: () => unwrap(api.GET("/api/v1/queues", { params: { query: { namespace: row.namespace } } })),
    refetchInterval: 10_000,
    retry: false,
  });
  const ahead = state.queue_position ? state.queue_position - 1 : null;
  const typical = queue.data?.items.find((item) => item.name === row.queue)?.waited_seconds;
  const start = { seconds: state.wait_estimate_seconds, span: state.wait_range_seconds, basis: state.wait_basis };
  return (
    <Neutral title="Queued">
      <Details
        isHorizontal
        entries={[
          ["Reason", row.why],
          ["Position", ahead === null ? "" : `${ahead + 1} (${ahead ? `${plural(ahead, "job")} ahead` : "next to start"})`],
          ["Estimated start", startText(start)],
          ["Estimate based on", basisText(start)],
          ["Median queue time", typical === null || typical === undefined ? "" : duration(typical)],
        ]}
      />
      <FixList title="To start sooner" fixes={(diagnosis?.fixes ?? []).filter((fix) => !/mpijob queue/.test(fix.command ?? ""))} hint="" onApply={applyFix.ask} />
      <div>
        <Link to="/queues">View queue</Link>
      </div>
      {applyFix.dialog}
    </Neutral>
  );
}

/** A running job that needs attention: it does not respond, or something runs out. */
function Warnings({ findings }: { findings: readonly Finding[] }) {
  const { row, detail } = useJobPage();
  const diagnosis = useDiagnosis(row, true).data;
  const applyFix = useApplyFix(detail);
  const stuck = isNotResponding(row);
  const codes = new Set(findings.map((finding) => finding.code));
  return (
    <Card component="section" aria-label={stuck ? "Not responding" : "Warnings"} data-testid="status-card" className={styles["warning"]}>
      <CardTitle component="h2">
        <Icon isInline status="warning" className={styles["titleIcon"] ?? ""}>
          <ExclamationTriangleIcon />
        </Icon>
        {stuck ? "Not responding" : plural(findings.length, "warning")}
      </CardTitle>
      <CardBody className={styles["column"]}>
        {findings.map((finding, index) => (
          <Cause key={`${finding.code}${index}`} finding={finding} />
        ))}
        <FixList title="What to do" fixes={(diagnosis?.fixes ?? []).filter((fix) => codes.has(fix.code))} hint={findings[0]?.hint ?? ""} onApply={applyFix.ask} />
      </CardBody>
      {applyFix.dialog}
    </Card>
  );
}

/** A job that succeeded says what stands in its way all the same. */
function Succeeded() {
  const { detail } = useJobPage();
  const findings = detail.state.findings ?? [];
  if (findings.length) return <Warnings findings={findings} />;
  return null;
}

