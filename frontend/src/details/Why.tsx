import { Alert, Button, Content, ExpandableSection, Label } from "@patternfly/react-core";
import CheckCircleIcon from "@patternfly/react-icons/dist/esm/icons/check-circle-icon";
import ExclamationCircleIcon from "@patternfly/react-icons/dist/esm/icons/exclamation-circle-icon";
import QuestionCircleIcon from "@patternfly/react-icons/dist/esm/icons/question-circle-icon";
import { useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { Link } from "react-router-dom";
import { addressOf, api, take, type Diagnosis, type Finding, type JobDetail } from "../api/client";
import { done } from "../done";
import { Helpful } from "../components/Helpful";
import { clock, plural } from "../words";

type Place = NonNullable<Finding["place"]>;

/** Where the lines around something that was seen are. */
function lines(detail: JobDetail, place: Place | null | undefined, rank: number | null | undefined): string {
  const asked = new URLSearchParams();
  const who = place?.rank ?? rank;
  if (who !== null && who !== undefined) asked.set("ranks", String(who));
  if (place?.time) {
    asked.set("since", String(Math.floor(place.time - 30)));
    asked.set("until", String(Math.ceil(place.time + 30)));
  }
  const words = asked.toString();
  return `/jobs/${detail.row.namespace}/${detail.row.name}/logs${words ? `?${words}` : ""}`;
}

/** Why the job stands where it stands: the first cause, its evidence, and what would mend it. */
export function Why({ detail }: { detail: JobDetail }) {
  const { namespace, name, phase, attempt, uid } = detail.row;
  const wanted = phase !== "Succeeded";
  const told = useQuery({
    queryKey: ["job", namespace, name, "why", phase, attempt, uid],
    queryFn: () => take(api.GET("/api/v1/trainjobs/{namespace}/{name}/why", { params: addressOf(detail.row) })),
    enabled: wanted,
  });
  const findings = told.data?.findings ?? detail.state.findings ?? [];
  useEffect(() => {
    if (phase === "Failed" && findings.length) done("why");
  }, [phase, findings.length]);
  if (!wanted || !findings.length) return null;
  return (
    <section aria-labelledby="why" data-testid="why">
      <h2 id="why" className="pf-v6-screen-reader">
        Why
      </h2>
      {findings.map((finding, index) => (
        <Cause key={`${finding.code}${index}`} finding={finding} detail={detail} told={told.data} first={index === 0} />
      ))}
      {phase === "Failed" ? <KnockOn detail={detail} first={findings[0]} /> : null}
      {told.data ? <Circumstances told={told.data} detail={detail} /> : null}
      {told.data && phase === "Failed" ? (
        <div className="filters">
          <Helpful about={`why:${findings[0]?.code ?? ""}`} />
          <Report told={told.data} />
        </div>
      ) : null}
    </section>
  );
}

/** Who stopped only because another did is no cause. */
function KnockOn({ detail, first }: { detail: JobDetail; first: Finding | undefined }) {
  const followed = (detail.state.ranks ?? []).filter((one) => one.followed && one.rank !== first?.rank && one.worker !== first?.worker).length;
  return followed ? <p className="cause">{plural(followed, "other rank")} stopped because of it, not by their own fault.</p> : null;
}

function Report({ told }: { told: Diagnosis }) {
  const [copied, setCopied] = useState(false);
  const text = [
    `${told.namespace}/${told.job}: ${told.summary}`,
    ...(told.findings ?? []).flatMap((one) => [`- ${one.code}: ${one.message}`, ...(one.evidence ?? []).map((line) => `    ${line}`)]),
    ...(told.timeline ?? []).map((one) => `${new Date(one.time * 1000).toISOString()} ${one.what} ${one.text ?? ""}`),
    ...(told.checklist ?? []).map((one) => `[${one.mark}] ${one.question} ${one.detail ?? ""}`),
  ].join("\n");
  return (
    <Button variant="secondary" size="sm" onClick={() => void navigator.clipboard.writeText(text).then(() => setCopied(true))}>
      {copied ? "Copied" : "Copy a report for support"}
    </Button>
  );
}

interface CauseProps {
  finding: Finding;
  detail: JobDetail;
  told: Diagnosis | undefined;
  first: boolean;
}

const sureness = (sure: number): string => (sure >= 0.9 ? "high" : sure >= 0.6 ? "likely" : "possible");

function Cause({ finding, detail, told, first }: CauseProps) {
  const [open, setOpen] = useState(first);
  const { namespace, name } = detail.row;
  const severity = finding.severity ?? "error";
  const fixes = (told?.fixes ?? []).filter((fix) => fix.code === finding.code);
  return (
    <Alert
      isInline
      component="h3"
      variant={severity === "error" ? "danger" : severity === "warning" ? "warning" : "info"}
      title={finding.message}
      className="cause"
    >
      {finding.hint && finding.hint !== fixes[0]?.text ? <Content component="p">{finding.hint}</Content> : null}
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
                {fix.command ? <code>{fix.command}</code> : null}
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
      <div className="filters">
        <Link to={lines(detail, finding.place, finding.rank)}>View detailed logs</Link>
        {finding.worker === null || finding.worker === undefined ? null : (
          <Link to={`/jobs/${namespace}/${name}/workers?worker=${finding.worker}`}>Worker {finding.worker}</Link>
        )}
        <Link to={`/jobs/${namespace}/${name}/metrics`}>Metrics</Link>
        <Link to={`/jobs/${namespace}/${name}/events`}>Events</Link>
        <Content component="small">
          Code {finding.code}, confidence {sureness(finding.confidence ?? 1)}
        </Content>
      </div>
    </Alert>
  );
}

const MARKS = {
  yes: { icon: <CheckCircleIcon />, color: "green", word: "yes" },
  no: { icon: <ExclamationCircleIcon />, color: "red", word: "no" },
  unknown: { icon: <QuestionCircleIcon />, color: "grey", word: "not known" },
} as const;

/** What happened when, and what was looked at; what is not known says so. */
function Circumstances({ told, detail }: { told: Diagnosis; detail: JobDetail }) {
  const [open, setOpen] = useState(false);
  const { timeline = [], checklist = [] } = told;
  if (!timeline.length && !checklist.length) return null;
  return (
    <ExpandableSection toggleText="What happened, and what was checked" isExpanded={open} onToggle={(_, on) => setOpen(on)}>
      <ol className="steps" aria-label="What happened">
        {timeline.map((step, index) => (
          <li key={`${step.time}${index}`}>
            <Link to={lines(detail, { ...step.place, time: step.time }, null)} title="The lines of that time">
              <time>{clock(step.time * 1000)}</time>
            </Link>{" "}
            {step.what} {step.text ? `– ${step.text}` : ""}
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
