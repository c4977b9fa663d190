import { Button, Grid, GridItem } from "@patternfly/react-core";
import { lazy, Suspense, useState } from "react";
import { Link } from "react-router-dom";
import type { JobRow } from "../api/client";
import { useAccount } from "../api/queries";
import { Details, type Entry } from "../components/Details";
import { Section } from "../components/Section";
import { Time } from "../components/Time";
import { LastLines } from "../logs/LastLines";
import { cost, money, mpiName, plural, range, roughly } from "../lib/format";
import { workersText } from "../lib/workers";
import { useNow } from "../lib/hooks";
import { isFinal } from "../lib/phases";
import { join } from "../wizard/shell";
import { JobTopology } from "../workers/JobTopology";
import { useJobPage } from "./context";
import { FailureCard } from "./FailureCard";
import styles from "./job.module.css";
import { StatusCard } from "./StatusCard";
import { StepsTable } from "./StepsTable";
import { Timeline } from "./Timeline";

const Markdown = lazy(() => import("../components/Markdown"));
const TrainingSummary = lazy(() => import("../metrics/TrainingSummary"));

const RECENT_LINES = 12;

/** Result first: why it failed or what it waits for, its curves and last lines; beside them timeline, details, workers. */
export function Overview() {
  const { detail, row } = useJobPage();
  const now = useNow();
  return (
    <Grid hasGutter>
      <GridItem lg={8} className={styles["column"]}>
        {row.phase === "Failed" ? <FailureCard /> : <StatusCard />}
        <Suspense fallback={null}>
          <TrainingSummary />
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
          <JobFacts now={now} />
        </Section>
        <WorkersCard />
      </GridItem>
    </Grid>
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
function JobFacts({ now }: { now: number }) {
  const { detail, row } = useJobPage();
  const { spec, state } = detail;
  const account = useAccount(row).data;
  const words = [...(spec.script ? [spec.script] : (spec.command ?? [])), ...(spec.args ?? [])];
  const entries: Entry[] = [
    [spec.script ? "Script" : "Command", <Command key="command" text={spec.script ? words.join(" ") : join(words)} />],
    ["Image", spec.image],
    ["Workers", workersText(spec, row.workers)],
    ["Processes", `${plural(row.ranks, "rank")}${row.mpi ? ` with ${mpiName(row.mpi)}` : ""}`],
    ["Created", <Time key="created" at={row.created} />],
    ["Finished", row.finished && isFinal(row.phase) ? <Time key="finished" at={row.finished} /> : ""],
    ["Cost", row.started === null ? "" : costText(account)],
    ["Expected end", expectedEnd(row, account?.estimate, now)],
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
  return <Details entries={entries} orientation={{ sm: "horizontal", lg: "vertical", xl: "horizontal" }} termWidth="7rem" />;
}

type Account = NonNullable<ReturnType<typeof useAccount>["data"]>;
type Estimate = NonNullable<Account["estimate"]>;

function costText(account: Account | undefined): string {
  if (!account) return "";
  if (account.cost === null || account.cost === undefined) return "No hourly rates set";
  const spent = cost(account.cost, account.currency);
  if (isFinal(account.account?.phase ?? "Running")) return spent;
  const whole = account.estimate?.cost ?? 0;
  return whole > account.cost ? `${spent} so far, about ${money(whole, account.currency)} in total` : `${spent} so far`;
}

const estimateText = (estimate: Estimate): string =>
  `about ${roughly(estimate.seconds)}${estimate.low_seconds < estimate.high_seconds ? ` (${range(estimate.low_seconds, estimate.high_seconds)})` : ""}, from ${estimate.basis}`;

/** When a running job ends, by earlier runs of its program. */
function expectedEnd({ phase, started }: JobRow, estimate: Estimate | null | undefined, now: number) {
  if (phase !== "Running" || started === null || !estimate) return "";
  if (started + estimate.seconds < now) return `Later than expected: ${estimateText(estimate)}`;
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
