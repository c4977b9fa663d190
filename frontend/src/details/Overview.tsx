import {
  Card,
  CardBody,
  CardTitle,
  ProgressStep,
  ProgressStepper,
} from "@patternfly/react-core";
import { Link } from "react-router-dom";
import type { JobDetail, JobState } from "../api/client";
import { Terms } from "../components/Terms";
import { useNow } from "../hooks";
import { ago, duration, moment, plural } from "../words";
import { Why } from "./Why";
import { WorkerTiles } from "./Workers";

export function Overview({ detail }: { detail: JobDetail }) {
  const { state, spec, row } = detail;
  const now = useNow();
  const resources = spec.resources ?? {};
  const gpus = resources.gpu ?? 0;
  const sentence =
    `${plural(row.workers, "worker")} with ${resources.cpu ?? "1"} CPU and ${resources.memory ?? "1Gi"}` +
    `${gpus ? ` and ${plural(gpus, "GPU")}` : ""} each, ${plural(row.ranks, "rank")}${row.mpi ? ` on ${row.mpi}` : ""}`;
  const facts: [string, string][] = [
    ["Resources", sentence],
    ["Command", [...(spec.command ?? []), ...(spec.args ?? [])].join(" ")],
    ["Waiting for", [state.waiting_for, state.queue_position ? `position ${state.queue_position}` : ""].filter(Boolean).join(", ")],
    ["Message", row.phase === "Failed" ? "" : (state.message ?? "")],
    ["Owner", row.owner],
    ["Queue", row.queue],
    ["Created", `${ago(row.created, now)} (${moment(row.created)})`],
    ["Attempt", `${row.attempt} of ${Math.max(row.attempt, state.attempts_allowed ?? 1)}`],
    ["Description", spec.description ?? ""],
  ];
  return (
    <div className="stack">
      <Why detail={detail} />
      <Card component="section" aria-label="Timeline">
        <CardTitle component="h2">Timeline</CardTitle>
        <CardBody>
          <Timeline state={state} now={now} />
        </CardBody>
      </Card>
      <Card component="section" aria-label="About">
        <CardTitle component="h2">About</CardTitle>
        <CardBody>
          <Terms isHorizontal entries={facts.filter(([, value]) => value)} />
        </CardBody>
      </Card>
      <Card component="section" aria-label="Workers">
        <CardTitle component="h2">Workers</CardTitle>
        <CardBody>
          <WorkerTiles detail={detail} />
          <Link to={`/jobs/${row.namespace}/${row.name}/logs`}>View detailed logs</Link>
        </CardBody>
      </Card>
    </div>
  );
}

interface Step {
  readonly word: string;
  readonly begin: number | null;
  readonly end: number | null;
}

/** The job's life with the time that each part took. */
function Timeline({ state, now }: { state: JobState; now: number }) {
  const created = state.created ?? 0;
  const ended = state.finished ?? null;
  const steps: Step[] = [
    { word: "Queued", begin: created, end: state.started ?? ended },
    { word: "Starting", begin: state.started ?? null, end: state.running ?? (state.started ? ended : null) },
    { word: "Running", begin: state.running ?? null, end: state.running ? ended : null },
  ];
  const outcome = ended ? state.phase : "End";
  return (
    <ProgressStepper aria-label="Timeline">
      {steps.map((step) => {
        const done = step.end !== null;
        const here = step.begin !== null && !done;
        return (
          <ProgressStep
            key={step.word}
            id={`step-${step.word}`}
            titleId={`step-${step.word}-title`}
            variant={done ? "success" : here ? "info" : "pending"}
            isCurrent={here}
            aria-label={`${step.word}: ${step.begin === null ? "not reached" : duration((step.end ?? now) - step.begin)}`}
            description={step.begin === null ? "–" : duration((step.end ?? now) - step.begin)}
          >
            {step.word}
          </ProgressStep>
        );
      })}
      <ProgressStep
        id="step-end"
        titleId="step-end-title"
        variant={state.phase === "Succeeded" ? "success" : state.phase === "Failed" ? "danger" : ended ? "warning" : "pending"}
        aria-label={outcome}
        description={ended ? moment(ended) : "–"}
      >
        {outcome}
      </ProgressStep>
    </ProgressStepper>
  );
}
