import { Button, Grid, GridItem, Progress, ProgressMeasureLocation } from "@patternfly/react-core";
import { lazy, Suspense, useState } from "react";
import { Link } from "react-router-dom";
import { useAccount, useCurves } from "../api/queries";
import { Details, type Entry } from "../components/Details";
import { Section } from "../components/Section";
import { Time } from "../components/Time";
import { LastLines } from "../logs/LastLines";
import { money, plural, quantity, range, roughly } from "../lib/format";
import { useNow } from "../lib/hooks";
import { isFinal, isNotResponding } from "../lib/phases";
import { position, progressPercent, timeLeft } from "../lib/progress";
import { join } from "../wizard/shell";
import { JobTopology } from "../workers/JobTopology";
import { useJobPage } from "./context";
import { FailureCard } from "./FailureCard";
import styles from "./job.module.css";
import { StatusCard } from "./StatusCard";
import { StepsTable } from "./StepsTable";
import { Timeline } from "./Timeline";

const Markdown = lazy(() => import("../components/Markdown"));
const TrainingCards = lazy(() => import("../metrics/TrainingCards"));

const RECENT_LINES = 8;

/** Result first: why it failed or what it waits for, its curves and last lines; beside them timeline, details, workers. */
export function Overview() {
  const { detail, row } = useJobPage();
  const now = useNow();
  return (
    <Grid hasGutter>
      <GridItem lg={8} className={styles["column"]}>
        {row.phase === "Failed" ? <FailureCard /> : <StatusCard />}
        <TrainingProgress />
        <Suspense fallback={null}>
          <TrainingCards />
        </Suspense>
        {detail.state.steps?.length ? (
          <Section title="Steps">
            <StepsTable now={now} />
          </Section>
        ) : null}
        <RecentLogs />
      </GridItem>
      <GridItem lg={4} className={styles["column"]}>
        <Section title="Timeline" isCompact>
          <Timeline now={now} />
        </Section>
        <Section title="Details" isCompact>
          <JobFacts />
        </Section>
        <WorkersCard />
      </GridItem>
    </Grid>
  );
}

/** How far a training is, and when it ends. */
function TrainingProgress() {
  const { row } = useJobPage();
  const curves = useCurves(row).data;
  const percent = curves ? progressPercent(curves) : null;
  if (!curves || percent === null || row.phase === "Succeeded") return null;
  const left = timeLeft(curves, row.phase === "Running" && !isNotResponding(row));
  return (
    <Progress
      id="training-progress"
      title={position(curves) || "Progress"}
      value={percent}
      label={[`${percent}%`, left].filter(Boolean).join(" · ")}
      measureLocation={ProgressMeasureLocation.top}
      variant={row.phase === "Failed" ? "danger" : undefined}
      data-testid="training-progress"
    />
  );
}

function RecentLogs() {
  const { detail, row, path } = useJobPage();
  const ranks = (detail.state.ranks ?? []).map((rank) => rank.rank);
  return (
    <Section title="Recent logs" actions={<Link to={path("logs")}>View all logs</Link>} isCompact>
      <LastLines row={row} count={RECENT_LINES} linkRanks={ranks.length > 1} />
    </Section>
  );
}

const MOST_TILES = 32;

function WorkersCard() {
  const { detail, path } = useJobPage();
  const count = detail.state.workers?.length ?? 0;
  return (
    <Section title="Workers" actions={<Link to={path("workers")}>View workers</Link>} isCompact>
      <JobTopology detail={detail} isCompact most={MOST_TILES} />
      {count > MOST_TILES ? <Link to={path("workers")}>View all {plural(count, "worker")}</Link> : null}
    </Section>
  );
}

const SHORT_COMMAND = 160;

/** Facts of the job as a list; cost and times with what they are based on. */
function JobFacts() {
  const { detail, row } = useJobPage();
  const { spec, state } = detail;
  const account = useAccount(row).data;
  const { cpu, memory, gpu } = spec.resources ?? {};
  const words = [...(spec.script ? [spec.script] : (spec.command ?? [])), ...(spec.args ?? [])];
  const entries: Entry[] = [
    [spec.script ? "Script" : "Command", <Command key="command" text={spec.script ? words.join(" ") : join(words)} />],
    ["Image", spec.image],
    ["Workers", `${row.workers} × (${[gpu ? plural(gpu, "GPU") : "", `${quantity(String(cpu ?? "1"))} CPU`, quantity(String(memory ?? "1Gi"))].filter(Boolean).join(", ")})`],
    ["Processes", `${plural(row.ranks, "rank")}${row.mpi ? ` with ${row.mpi}` : ""}`],
    ["Created", <Time key="created" at={row.created} />],
    ["Finished", row.finished ? <Time key="finished" at={row.finished} /> : ""],
    ["Cost", costText(account)],
    ["Expected end", expectedEnd(row.phase, row.started, account?.estimate)],
    ["Expected run time", row.started === null && account?.estimate ? estimateText(account.estimate) : ""],
    ["Queue", row.queue],
    ["Priority", state.priority ? String(state.priority) : ""],
    ["Automatic retries", (state.attempts_allowed ?? 1) > 1 ? `attempt ${row.attempt} of ${state.attempts_allowed}` : ""],
    ["Labels", Object.entries(spec.labels ?? {}).map(([key, value]) => `${key}=${value}`).join(", ")],
    [
      "Description",
      spec.description ? (
        <Suspense key="description" fallback={spec.description}>
          <Markdown text={spec.description} />
        </Suspense>
      ) : (
        ""
      ),
    ],
  ];
  return <Details entries={entries} />;
}

type Account = NonNullable<ReturnType<typeof useAccount>["data"]>;
type Estimate = NonNullable<Account["estimate"]>;

function costText(account: Account | undefined): string {
  if (!account) return "";
  if (account.cost === null || account.cost === undefined) return "No hourly rates set";
  const { estimate } = account;
  const whole = estimate?.cost ? `, about ${money(estimate.cost, account.currency)} in all expected` : "";
  return `≈ ${money(account.cost, account.currency)}${isFinal(account.account?.phase ?? "Running") ? "" : ` so far${whole}`}`;
}

const estimateText = (estimate: Estimate): string =>
  `about ${roughly(estimate.seconds)}${estimate.low_seconds < estimate.high_seconds ? ` (${range(estimate.low_seconds, estimate.high_seconds)})` : ""}, from ${estimate.basis}`;

/** When a running job ends, by earlier runs of its program. */
function expectedEnd(phase: string, started: number | null, estimate: Estimate | null | undefined) {
  if (phase !== "Running" || started === null || !estimate) return "";
  return (
    <>
      <Time at={started + estimate.seconds} />, from {estimate.basis}
    </>
  );
}

function Command({ text }: { text: string }) {
  const [open, setOpen] = useState(false);
  const long = text.length > SHORT_COMMAND;
  return (
    <>
      <code className={styles["command"]}>{long && !open ? `${text.slice(0, SHORT_COMMAND)}…` : text}</code>
      {long ? (
        <Button variant="link" isInline onClick={() => setOpen(!open)}>
          {open ? "Show less" : "Show all"}
        </Button>
      ) : null}
    </>
  );
}

