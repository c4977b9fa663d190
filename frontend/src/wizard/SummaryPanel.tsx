import { Alert, Button, Card, CardBody, CardTitle, ExpandableSection, HelperText, HelperTextItem, Label, List, ListItem, Progress, ProgressMeasureLocation } from "@patternfly/react-core";
import InfoCircleIcon from "@patternfly/react-icons/dist/esm/icons/info-circle-icon";
import { useState } from "react";
import type { Estimate, Fit, Plan, PlanAnswer, SizingReport } from "../api/client";
import { basisText, startText } from "../lib/estimate";
import { bytes, capitalized, cost as costText, decimal, money, mpiName, plural, quantity, range, roughly, spans } from "../lib/format";
import { partsOf, workersText } from "../lib/workers";
import { labelOf } from "./fields";
import { usefulAdvice, workersThatStartNow } from "./summary";
import type { DraftChecks } from "./useDraft";
import styles from "./wizard.module.css";

interface Props {
  checks: DraftChecks;
  /** Whether the text has to be converted first. */
  isForeign: boolean;
  workers: number;
  onWorkers: (workers: number) => void;
  onAdvice: (path: string, value: string) => void;
}

/** What will run, what it takes of what is free, when it starts, and what earlier runs lead to expect. */
export function SummaryPanel({ checks, isForeign, workers, onWorkers, onAdvice }: Props) {
  const { isReady, isChecking, error, plan, fit, estimate, sizing } = checks;
  return (
    <Card component="section" aria-labelledby="summary-title" className={styles["summary"]}>
      <CardTitle id="summary-title" component="h2">
        Summary
      </CardTitle>
      <CardBody className={styles["column"]} data-testid="summary">
        {isReady ? null : <p>Enter a name and a command to see a preview.</p>}
        {isReady && !plan ? <p role="status">{error ? (isForeign ? "Convert it to see a preview." : "Fix the errors to see a preview.") : isChecking ? "Checking…" : ""}</p> : null}
        {plan ? <Layout plan={plan} /> : null}
        {plan ? <RankLayout plan={plan.plan} /> : null}
        {isReady && plan ? <Capacity plan={plan.plan} /> : null}
        {isReady && fit ? <Start fit={fit} workers={workers} onWorkers={onWorkers} /> : null}
        {estimate ? <EstimateText estimate={estimate} /> : null}
        {isReady && sizing ? <Advice sizing={sizing} onAdvice={onAdvice} /> : null}
        {plan ? <Notices plan={plan.plan} /> : null}
        {plan ? <LaunchDetails plan={plan.plan} /> : null}
      </CardBody>
    </Card>
  );
}

/** Workers, GPUs and processes in one line, and what needs how much. */
function Layout({ plan: { plan } }: { plan: PlanAnswer }) {
  const count = plan.workers.length;
  const parts = partsOf(plan.job, count);
  const gpus = Number(parts[0]?.resources.gpu ?? 0);
  return (
    <div data-testid="plan" aria-live="polite">
      <strong>
        {parts.length > 1 ? workersText(plan.job, count) : `${plural(count, "worker")}${gpus ? ` × ${plural(gpus, "GPU")}` : ""}`} = {plural(plan.world, "process", "processes")}
      </strong>
      <div className={styles["note"]}>
        1 launcher + {plural(count, "worker")} = {plural(plan.world, "rank")} with {mpiName(`${plan.family} ${plan.family_version ?? ""}`)}
      </div>
    </div>
  );
}

const MOST_WORKERS = 24;
const MOST_SQUARES = 16;

/** Which worker gets which ranks, before anything starts. */
function RankLayout({ plan }: { plan: Plan }) {
  const [open, setOpen] = useState(false);
  const gpus = new Map(partsOf(plan.job, plan.workers.length).map(({ name, resources }) => [name, Number(resources.gpu ?? 0)]));
  const shown = plan.workers.slice(0, MOST_WORKERS);
  return (
    <ExpandableSection toggleText="Ranks by worker" isExpanded={open} onToggle={(_, next) => setOpen(next)}>
      {open ? (
        <ul className={styles["rankLayout"]} aria-label="Ranks by worker">
          {shown.map(({ index, ranks, group = "" }) => (
            <li key={index}>
              <strong>Worker {index}</strong>
              <span className="pf-v6-screen-reader">{`, ${ranks.length === 1 ? "rank" : "ranks"} ${spans(ranks)}`}</span>
              {[group, gpus.get(group) ? plural(gpus.get(group) ?? 0, "GPU") : ""].filter(Boolean).map((note) => (
                <span key={note} className={styles["note"]}>{note}</span>
              ))}
              <span className={styles["ranks"]} aria-hidden>
                {ranks.slice(0, MOST_SQUARES).map((rank) => (
                  <span key={rank}>{rank}</span>
                ))}
                {ranks.length > MOST_SQUARES ? `+${ranks.length - MOST_SQUARES}` : ""}
              </span>
            </li>
          ))}
          {plan.workers.length > shown.length ? <li>and {plural(plan.workers.length - shown.length, "more worker", "more workers")}</li> : null}
        </ul>
      ) : null}
    </ExpandableSection>
  );
}

function Capacity({ plan }: { plan: Plan }) {
  const { needs = {}, free = {}, capacity = {} } = plan;
  const bars = [
    { label: "GPU", need: needs.gpus ?? 0, left: free.gpus ?? 0, whole: capacity.gpus ?? 0, format: decimal },
    { label: "CPU cores", need: needs.cores ?? 0, left: free.cores ?? 0, whole: capacity.cores ?? 0, format: decimal },
    { label: "Memory", need: needs.memory_bytes ?? 0, left: free.memory_bytes ?? 0, whole: capacity.memory_bytes ?? 0, format: bytes },
  ];
  return (
    <>
      {bars
        .filter(({ need, whole }) => whole > 0 || need > 0)
        .map(({ label, need, left, whole, format }) => {
          const text = `${format(need)} requested · ${format(left)} of ${format(whole)} free`;
          return (
            <Progress
              key={label}
              id={`capacity-${label.replace(/\W+/g, "-")}`}
              title={label}
              value={left > 0 ? Math.min(100, (100 * need) / left) : need > 0 ? 100 : 0}
              label={text}
              valueText={text}
              measureLocation={ProgressMeasureLocation.top}
              variant={need > left ? "warning" : undefined}
              size="sm"
            />
          );
        })}
    </>
  );
}

const FIT_VARIANTS = { "fits now": "success", waits: "info", "can never fit": "danger", "not known": "info" } as const;

/** Whether the job starts now, and if not, why and when. */
function Start({ fit, workers, onWorkers }: { fit: Fit; workers: number; onWorkers: (workers: number) => void }) {
  const fewer = workersThatStartNow(fit, workers);
  const start = { seconds: fit.wait_seconds, span: fit.wait_range, basis: fit.wait_basis };
  const reason = capitalized(fit.reason || fit.message);
  return (
    <Alert isInline variant={FIT_VARIANTS[fit.verdict]} title={fit.verdict === "fits now" ? "Starts now" : reason} component="h3" data-testid="fit">
      {fit.hint && !fewer ? <p>{capitalized(fit.hint)}</p> : null}
      {fit.ahead_jobs && !reason.includes("ahead") ? <p>{plural(fit.ahead_jobs, "job")} ahead in the queue</p> : null}
      {fit.verdict === "waits" ? (
        <>
          <p>Estimated start: {startText(start)}</p>
          {basisText(start) ? <p className={styles["note"]}>{basisText(start)}</p> : null}
        </>
      ) : null}
      {fewer ? (
        <Button variant="secondary" size="sm" onClick={() => onWorkers(fewer)}>
          Use {plural(fewer, "worker")} (starts now)
        </Button>
      ) : null}
    </Alert>
  );
}

/** How long the job will take and what it will cost, with what that rests on. */
function EstimateText({ estimate }: { estimate: Estimate }) {
  const { seconds, low_seconds: low, high_seconds: high, cost, low_cost: least, high_cost: most, currency, basis } = estimate;
  const isRange = money(least, currency) !== money(most, currency);
  const price = cost ? ` · ${costText(cost, currency)}${isRange ? ` (${money(least, "")}–${money(most, currency)})` : ""}` : "";
  return (
    <div data-testid="estimate">
      <strong>
        About {roughly(seconds)}
        {high > low ? ` (${range(low, high)})` : ""}
        {price}
      </strong>
      <div className={styles["note"]}>from {basis}</div>
    </div>
  );
}

/** What earlier runs of this program used, as changes that one click makes. */
function Advice({ sizing, onAdvice }: { sizing: SizingReport; onAdvice: (path: string, value: string) => void }) {
  const advice = usefulAdvice(sizing);
  const sentences = sizing.scaling?.sentences ?? [];
  if (!advice.length && !sentences.length) return null;
  return (
    <Alert isInline variant="info" component="h3" title={`From ${plural(sizing.runs, "earlier run")}`} data-testid="advice">
      <List isPlain>
        {advice.map((one) => (
          <ListItem key={one.field}>
            {capitalized(one.reason)}.{" "}
            <Button variant="link" isInline onClick={() => onAdvice(one.field, one.value)}>
              Set {labelOf(one.field).toLowerCase()} to {quantity(one.value)}
            </Button>
          </ListItem>
        ))}
        {sentences.map((sentence) => (
          <ListItem key={sentence}>{capitalized(sentence)}</ListItem>
        ))}
      </List>
    </Alert>
  );
}

const SHOWN_ELSEWHERE = new Set(["EXPECTED", "WILL_WAIT"]);

function Notices({ plan }: { plan: Plan }) {
  const notices = (plan.notices ?? []).filter((notice) => !SHOWN_ELSEWHERE.has(notice.code));
  const warnings = notices.filter((notice) => notice.severity === "warning");
  const remarks = notices.filter((notice) => notice.severity !== "warning");
  return (
    <>
      {warnings.map((notice) => (
        <Alert key={`${notice.code}${notice.message}`} isInline isPlain component="h3" variant="warning" title={capitalized(notice.message)}>
          {notice.hint ? capitalized(notice.hint) : null}
        </Alert>
      ))}
      {remarks.length ? (
        <HelperText component="ul" aria-label="Notes">
          {remarks.map((notice) => (
            <HelperTextItem key={`${notice.code}${notice.message}`} component="li" icon={<InfoCircleIcon />}>
              {[notice.message, notice.hint].filter(Boolean).map((text) => `${capitalized(text ?? "")}.`).join(" ").replaceAll("..", ".")}
            </HelperTextItem>
          ))}
        </HelperText>
      ) : null}
    </>
  );
}

function LaunchDetails({ plan }: { plan: Plan }) {
  const [open, setOpen] = useState(false);
  return (
    <ExpandableSection toggleText="Launch command and hostfile" isExpanded={open} onToggle={(_, next) => setOpen(next)}>
      {open ? (
        <>
          <pre className={styles["output"]} tabIndex={0} aria-label="Launch command">
            {plan.launch.join(" ")}
          </pre>
          <pre className={styles["output"]} tabIndex={0} aria-label="Hostfile">
            {plan.hostfile}
          </pre>
          <List>
            {(plan.why ?? []).map((reason) => (
              <ListItem key={reason}>{capitalized(reason)}</ListItem>
            ))}
          </List>
          <Label isCompact>{plan.engine}</Label>
        </>
      ) : null}
    </ExpandableSection>
  );
}
