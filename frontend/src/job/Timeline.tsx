import { ProgressStep, ProgressStepper } from "@patternfly/react-core";
import { Link } from "react-router-dom";
import { dateTime } from "../lib/time";
import { duration } from "../lib/format";
import { usePreferences } from "../shell/preferences";
import { useJobPage } from "./context";
import styles from "./job.module.css";
import { stagesOf } from "./stages";

/** The job's life with the time that each stage took; each stage opens the log lines of its time. */
export function Timeline({ now }: { now: number }) {
  const { detail, path } = useJobPage();
  const { state } = detail;
  const { zone } = usePreferences();
  const ended = state.finished ?? null;
  const lines = (begin: number, end: number | null): string => path("logs", { since: Math.floor(begin), until: end === null ? undefined : Math.ceil(end + 1) });
  const outcome = ended ? state.phase : "Finished";
  return (
    <ProgressStepper isVertical aria-label="Timeline" className={styles["timeline"] ?? ""}>
      {stagesOf(state).map(({ label, begin, end }) => {
        const reached = begin !== null;
        const active = reached && end === null && !ended;
        const took = reached ? duration((end ?? now) - begin) : "Not started";
        return (
          <ProgressStep
            key={label}
            id={`stage-${label}`}
            titleId={`stage-${label}-title`}
            variant={reached && end !== null ? "success" : active ? "info" : "pending"}
            isCurrent={active}
            aria-label={`${label}: ${took}`}
            description={took}
          >
            {reached ? <Link to={lines(begin, end)}>{label}</Link> : label}
          </ProgressStep>
        );
      })}
      <ProgressStep
        id="stage-end"
        titleId="stage-end-title"
        variant={state.phase === "Succeeded" ? "success" : state.phase === "Failed" ? "danger" : ended ? "default" : "pending"}
        aria-label={outcome}
        description={ended ? dateTime(ended, zone) : "–"}
      >
        {ended ? <Link to={lines(ended - 60, ended)}>{outcome}</Link> : outcome}
      </ProgressStep>
    </ProgressStepper>
  );
}
