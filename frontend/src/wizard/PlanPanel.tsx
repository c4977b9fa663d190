import { Alert, ExpandableSection } from "@patternfly/react-core";
import { useState } from "react";
import type { PlanAnswer } from "../api/client";
import { Terms } from "../components/Terms";
import { duration } from "../words";

interface Props {
  plan: PlanAnswer | undefined;
  waiting: boolean;
  busy: boolean;
  refused: boolean;
}

const waits = (seconds: number | null | undefined): string =>
  seconds === null || seconds === undefined ? "when there is room" : `when there is room, in about ${duration(seconds)}`;

/** The plan in the server's words: nothing is started by looking at it. */
export function PlanPanel({ plan, waiting, busy, refused }: Props) {
  const [open, setOpen] = useState(false);
  if (waiting) return <p>Give the job a name and a command; what would run is shown here before anything starts.</p>;
  if (!plan) return <p role="status">{refused ? "This would be refused; the fields say why." : busy ? "Looking …" : ""}</p>;
  const { notices = [] } = plan.plan;
  const rows: [string, string][] = [
    ["World", plan.summary],
    ["Starts", plan.plan.starts_now === false ? waits(plan.plan.wait_estimate_seconds) : "now"],
  ];
  return (
    <div data-testid="plan" aria-live="polite">
      <Terms entries={rows} />
      {notices.map((notice) => (
        <Alert
          key={`${notice.code}${notice.message}`}
          isInline
          isPlain
          variant={notice.severity === "warning" ? "warning" : "info"}
          title={notice.message}
        >
          {notice.hint}
        </Alert>
      ))}
      <ExpandableSection toggleText="Exactly" isExpanded={open} onToggle={(_, on) => setOpen(on)}>
        <pre className="exactly" tabIndex={0} aria-label="Launch line">
          {plan.plan.launch.join(" ")}
        </pre>
        <pre className="exactly" tabIndex={0} aria-label="Hostfile">
          {plan.plan.hostfile}
        </pre>
        <ul>
          {(plan.plan.why ?? []).map((one) => (
            <li key={one}>{one}</li>
          ))}
        </ul>
      </ExpandableSection>
    </div>
  );
}
