import {
  Card,
  CardBody,
  CardFooter,
  CardHeader,
  CardTitle,
  Content,
  ExpandableSection,
  Flex,
  FlexItem,
  Icon,
  Label,
  List,
  ListItem,
} from "@patternfly/react-core";
import CheckCircleIcon from "@patternfly/react-icons/dist/esm/icons/check-circle-icon";
import ExclamationCircleIcon from "@patternfly/react-icons/dist/esm/icons/exclamation-circle-icon";
import QuestionCircleIcon from "@patternfly/react-icons/dist/esm/icons/question-circle-icon";
import { useEffect, useState } from "react";
import { Link } from "react-router-dom";
import type { Diagnosis, Finding } from "../api/client";
import { useDiagnosis } from "../api/queries";
import { CopyButton } from "../components/CopyButton";
import { Feedback } from "../components/Feedback";
import { Time } from "../components/Time";
import { markVisited } from "../lib/visited";
import { capitalized, plural } from "../lib/format";
import { useApplyFix } from "./applyFix";
import { useJobPage } from "./context";
import { FixList } from "./FixList";
import styles from "./job.module.css";

/** Why the job failed: the first cause, its evidence, and what to do, ranked. */
export function FailureCard() {
  const { detail, row } = useJobPage();
  const diagnosis = useDiagnosis(row, true).data;
  const findings = diagnosis?.findings ?? detail.state.findings ?? [];
  const [first, ...others] = findings;
  const applyFix = useApplyFix(detail);
  useEffect(() => {
    if (first) markVisited("why");
  }, [first]);
  if (!first) return null;
  return (
    <Card component="section" aria-labelledby="why-title" data-testid="why" className={styles["failure"]}>
      <CardHeader>
        <CardTitle component="h2" id="why-title">
          Why it failed
        </CardTitle>
      </CardHeader>
      <CardBody className={styles["column"]}>
        <Cause finding={first} isFirst />
        <KnockOn first={first} />
        <FixList fixes={(diagnosis?.fixes ?? []).filter((fix) => fix.code === first.code)} hint={first.hint ?? ""} onApply={applyFix.ask} />
        {others.map((finding, index) => (
          <Cause key={`${finding.code}${index}`} finding={finding} />
        ))}
        {diagnosis ? <Checks diagnosis={diagnosis} /> : null}
      </CardBody>
      <CardFooter>
        <Flex justifyContent={{ default: "justifyContentSpaceBetween" }} alignItems={{ default: "alignItemsCenter" }}>
          <FlexItem>
            <Feedback topic={`why:${first.code}`} />
          </FlexItem>
          <Flex>
            {diagnosis ? <CopyButton label="Copy report" text={() => report(diagnosis)} /> : null}
            <Content component="small">
              {first.code} · Confidence: {confidence(first.confidence ?? 1)}
            </Content>
          </Flex>
        </Flex>
      </CardFooter>
      {applyFix.dialog}
    </Card>
  );
}

const confidence = (value: number): string => (value >= 0.9 ? "high" : value >= 0.6 ? "medium" : "low");

const STATUS = { error: "danger", warning: "warning", notice: "info" } as const;

/** One cause with the lines and numbers that speak for it. */
export function Cause({ finding, isFirst = false }: { finding: Finding; isFirst?: boolean }) {
  const { path } = useJobPage();
  const [open, setOpen] = useState(isFirst);
  const evidence = finding.evidence ?? [];
  const { worker } = finding;
  const lines = logFilter(finding);
  return (
    <div>
      <Flex flexWrap={{ default: "nowrap" }} alignItems={{ default: "alignItemsFlexStart" }}>
        <Icon status={STATUS[finding.severity ?? "error"]} isInline>
          <ExclamationCircleIcon />
        </Icon>
        <strong className={styles["cause"]}>{finding.message}</strong>
      </Flex>
      {evidence.length ? (
        <ExpandableSection toggleText="Evidence" isExpanded={open} onToggle={(_, next) => setOpen(next)} isIndented>
          <pre className={styles["output"]} tabIndex={0} aria-label="Evidence">
            {evidence.join("\n")}
          </pre>
          <Flex>
            <Link to={path("logs", lines)}>View logs</Link>
            {worker === null || worker === undefined ? null : <Link to={path("workers", { worker })}>Worker {worker}</Link>}
            <Link to={path("metrics")}>Metrics</Link>
            <Link to={path("events")}>Events</Link>
          </Flex>
        </ExpandableSection>
      ) : null}
    </div>
  );
}

/** The log lines around what was found. */
function logFilter({ place, rank }: Finding): Record<string, string | number | undefined> {
  const who = place?.rank ?? rank;
  return {
    ranks: who ?? undefined,
    since: place?.time ? Math.floor(place.time - 30) : undefined,
    until: place?.time ? Math.ceil(place.time + 30) : undefined,
  };
}

/** Ranks that ended only because another failed are not a cause. */
function KnockOn({ first }: { first: Finding }) {
  const { detail } = useJobPage();
  const stopped = (detail.state.ranks ?? []).filter((rank) => rank.followed && rank.rank !== first.rank && rank.worker !== first.worker).length;
  return stopped ? <p>{plural(stopped, "other rank")} stopped as a result.</p> : null;
}

const MARKS = {
  yes: { icon: CheckCircleIcon, color: "green", word: "Yes" },
  no: { icon: ExclamationCircleIcon, color: "red", word: "No" },
  unknown: { icon: QuestionCircleIcon, color: "grey", word: "Unknown" },
} as const;

/** What happened when, and what was checked; what is not known says so. */
function Checks({ diagnosis }: { diagnosis: Diagnosis }) {
  const { path } = useJobPage();
  const [open, setOpen] = useState(false);
  const { timeline = [], checklist = [] } = diagnosis;
  const passed = checklist.filter((check) => check.mark === "yes").length;
  if (!timeline.length && !checklist.length) return null;
  return (
    <ExpandableSection toggleText={`Timeline and checks (${passed} of ${checklist.length} passed)`} isExpanded={open} onToggle={(_, next) => setOpen(next)} isIndented>
      <List isPlain aria-label="What happened">
        {timeline.map((step, index) => (
          <ListItem key={`${step.time}${index}`}>
            <Link to={path("logs", { since: Math.floor(step.time - 30), until: Math.ceil(step.time + 30) })}>
              <Time at={step.time} format="second" isInLink />
              <span className="pf-v6-screen-reader">, show logs at this time</span>
            </Link>{" "}
            {capitalized(step.what)}
            {step.text ? `: ${step.text}` : ""}
          </ListItem>
        ))}
      </List>
      <List isPlain aria-label="Checks" className={styles["checks"]}>
        {checklist.map((check) => {
          const { icon: MarkIcon, color, word } = MARKS[check.mark];
          return (
            <ListItem key={check.question}>
              {capitalized(check.question)}:{" "}
              <Label icon={<MarkIcon />} color={color} variant="outline" isCompact>
                {word}
              </Label>{" "}
              {check.detail}
            </ListItem>
          );
        })}
      </List>
    </ExpandableSection>
  );
}

/** The diagnosis as text, times in UTC: it is read elsewhere. */
const report = (diagnosis: Diagnosis): string =>
  [
    `${diagnosis.namespace}/${diagnosis.job}: ${diagnosis.summary}`,
    ...(diagnosis.findings ?? []).flatMap((finding) => [`- ${finding.code}: ${finding.message}`, ...(finding.evidence ?? []).map((line) => `    ${line}`)]),
    ...(diagnosis.timeline ?? []).map((step) => `${new Date(step.time * 1000).toISOString()} ${step.what} ${step.text ?? ""}`.trimEnd()),
    ...(diagnosis.checklist ?? []).map((check) => `[${check.mark}] ${check.question} ${check.detail ?? ""}`.trimEnd()),
  ].join("\n");
