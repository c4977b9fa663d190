import { Alert, Button, Content, ExpandableSection, Label } from "@patternfly/react-core";
import CheckCircleIcon from "@patternfly/react-icons/dist/esm/icons/check-circle-icon";
import ExclamationCircleIcon from "@patternfly/react-icons/dist/esm/icons/exclamation-circle-icon";
import QuestionCircleIcon from "@patternfly/react-icons/dist/esm/icons/question-circle-icon";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "react-router-dom";
import { api, take, type Diagnosis, type Finding, type JobDetail } from "../api/client";
import { clock } from "../words";

/** Why the job stands where it stands: the first cause, its evidence, and what would mend it. */
export function Why({ detail }: { detail: JobDetail }) {
  const { namespace, name, phase, attempt } = detail.row;
  const wanted = phase !== "Succeeded";
  const told = useQuery({
    queryKey: ["job", namespace, name, "why", phase, attempt],
    queryFn: () => take(api.GET("/api/v1/trainjobs/{namespace}/{name}/why", { params: { path: { namespace, name } } })),
    enabled: wanted,
  });
  const findings = told.data?.findings ?? detail.state.findings ?? [];
  if (!wanted || !findings.length) return null;
  return (
    <section aria-labelledby="why" data-testid="why">
      <h2 id="why" className="pf-v6-screen-reader">
        Why
      </h2>
      {findings.map((finding, index) => (
        <Cause key={`${finding.code}${index}`} finding={finding} detail={detail} told={told.data} first={index === 0} />
      ))}
      {told.data ? <Circumstances told={told.data} /> : null}
    </section>
  );
}

interface CauseProps {
  finding: Finding;
  detail: JobDetail;
  told: Diagnosis | undefined;
  first: boolean;
}

function Cause({ finding, detail, told, first }: CauseProps) {
  const [open, setOpen] = useState(first);
  const { namespace, name } = detail.row;
  const severity = finding.severity ?? "error";
  const sure = finding.confidence ?? 1;
  const fixes = (told?.fixes ?? []).filter((fix) => fix.code === finding.code);
  const logs = finding.rank === undefined || finding.rank === null ? "" : `?ranks=${finding.rank}`;
  return (
    <Alert
      isInline
      variant={severity === "error" ? "danger" : severity === "warning" ? "warning" : "info"}
      title={finding.message}
      className="cause"
    >
      {finding.hint && finding.hint !== fixes[0]?.text ? <Content component="p">{finding.hint}</Content> : null}
      {sure < 0.9 ? <Content component="small">{sure >= 0.6 ? "likely" : "possible"}</Content> : null}
      {fixes.length ? (
        <>
          <Content component="p">What would mend it:</Content>
          <ol className="fixes">
            {fixes.map((fix) => (
              <li key={fix.number} value={fix.number}>
                {fix.text}{" "}
                {fix.patch && Object.keys(fix.patch).length ? (
                  <Button
                    variant="link"
                    isInline
                    component={(props) => (
                      <Link {...props} to={`/create?from=${encodeURIComponent(`${namespace}/${name}`)}&fix=${fix.number}`} />
                    )}
                  >
                    Clone with this change
                  </Button>
                ) : null}
              </li>
            ))}
          </ol>
        </>
      ) : null}
      {(finding.evidence ?? []).length ? (
        <ExpandableSection toggleText="Evidence" isExpanded={open} onToggle={(_, on) => setOpen(on)}>
          <pre className="exactly" tabIndex={0} aria-label="Evidence">
            {(finding.evidence ?? []).join("\n")}
          </pre>
        </ExpandableSection>
      ) : null}
      <Link to={`/jobs/${namespace}/${name}/logs${logs}`}>View detailed logs</Link>
      <Content component="small">Code {finding.code}</Content>
    </Alert>
  );
}

const MARKS = {
  yes: { icon: <CheckCircleIcon />, color: "green", word: "yes" },
  no: { icon: <ExclamationCircleIcon />, color: "red", word: "no" },
  unknown: { icon: <QuestionCircleIcon />, color: "grey", word: "not known" },
} as const;

/** What happened when, and what was looked at; what is not known says so. */
function Circumstances({ told }: { told: Diagnosis }) {
  const [open, setOpen] = useState(false);
  const { timeline = [], checklist = [] } = told;
  if (!timeline.length && !checklist.length) return null;
  return (
    <ExpandableSection toggleText="What happened, and what was checked" isExpanded={open} onToggle={(_, on) => setOpen(on)}>
      <ol className="steps" aria-label="What happened">
        {timeline.map((step, index) => (
          <li key={`${step.time}${index}`}>
            <time>{clock(step.time * 1000)}</time> {step.what} {step.text ? `– ${step.text}` : ""}
          </li>
        ))}
      </ol>
      <ul className="checks" aria-label="What was checked">
        {checklist.map((check) => {
          const { icon, color, word } = MARKS[check.mark];
          return (
            <li key={check.question}>
              <Label icon={icon} color={color} variant="outline">
                {check.question} {word}
              </Label>{" "}
              {check.detail}
            </li>
          );
        })}
      </ul>
    </ExpandableSection>
  );
}
