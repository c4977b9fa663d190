import { ProgressStep, ProgressStepper } from "@patternfly/react-core";
import { Link } from "react-router-dom";
import type { JobDetail } from "../api/client";
import { duration, linesBetween, moment } from "../words";

interface Step {
  readonly word: string;
  readonly begin: number | null;
  readonly end: number | null;
}

/** The job's life with the time that each part took; each part opens the lines of its time. */
export function Timeline({ detail, now }: { detail: JobDetail; now: number }) {
  const { state, row } = detail;
  const created = state.created ?? 0;
  const ended = state.finished ?? null;
  const steps: Step[] = [
    { word: "Queued", begin: created, end: state.started ?? ended },
    { word: "Starting", begin: state.started ?? null, end: state.running ?? (state.started ? ended : null) },
    { word: "Running", begin: state.running ?? null, end: state.running ? ended : null },
  ];
  const outcome = ended ? state.phase : "End";
  const lines = (begin: number | null, end: number | null): string =>
    linesBetween(row, begin ?? created, end === null ? null : end + 1);
  return (
    <ProgressStepper aria-label="Timeline">
      {steps.map((step) => {
        const done = step.end !== null;
        const here = step.begin !== null && !done;
        const took = step.begin === null ? "not reached" : duration((step.end ?? now) - step.begin);
        return (
          <ProgressStep
            key={step.word}
            id={`step-${step.word}`}
            titleId={`step-${step.word}-title`}
            variant={done && step.begin !== null ? "success" : here ? "info" : "pending"}
            isCurrent={here}
            aria-label={`${step.word}: ${took}`}
            description={step.begin === null ? "–" : took}
          >
            {step.begin === null ? step.word : <Link to={lines(step.begin, step.end)}>{step.word}</Link>}
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
        {ended ? <Link to={lines(ended - 60, ended)}>{outcome}</Link> : outcome}
      </ProgressStep>
    </ProgressStepper>
  );
}
