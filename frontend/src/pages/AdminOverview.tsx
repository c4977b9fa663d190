import { Alert } from "@patternfly/react-core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router-dom";
import { api, unwrap } from "../api/client";
import type { components } from "../api/schema";
import { useCapabilities } from "../api/queries";
import { Answer } from "../components/Answer";
import { DataTable } from "../components/DataTable";
import { Section } from "../components/Section";
import { StatCards } from "../components/StatCards";
import { Time } from "../components/Time";
import { percent } from "../lib/format";
import { jobPath } from "../lib/links";
import { priceOf } from "./prices";
import styles from "./pages.module.css";

type ClusterView = components["schemas"]["ClusterView"];
type Limit = components["schemas"]["Line"];

const DAY_SECONDS = 86400;
const MONTH_DAYS = 30;

/** How the place stands in a few numbers, then its projects and queues. */
export function AdminOverview() {
  const cluster = useCapabilities().data?.cluster ?? false;
  const view = useQuery({
    queryKey: ["cluster"],
    queryFn: () => unwrap(api.GET("/api/v1/overview/cluster")),
    refetchInterval: 10_000,
    retry: false,
    enabled: cluster,
  });
  return (
    <div className={styles["column"]}>
      <Numbers view={view.data} />
      {cluster ? <Answer query={view}>{(data) => <Cluster view={data} />}</Answer> : <Alert isInline isPlain variant="info" component="p" title="Project, queue and quota management is available when connected to a cluster." />}
    </div>
  );
}

function Numbers({ view }: { view: ClusterView | undefined }) {
  const overview = useQuery({ queryKey: ["overview"], queryFn: () => unwrap(api.GET("/api/v1/overview")), refetchInterval: 10_000, retry: false }).data;
  const failures = useQuery({ queryKey: ["patterns", "7"], queryFn: () => unwrap(api.GET("/api/v1/patterns", { params: { query: { days: 7, least: 1 } } })), retry: false }).data;
  const since = Math.floor(Date.now() / 3_600_000) * 3600 - MONTH_DAYS * DAY_SECONDS;
  const spend = useQuery({
    queryKey: ["usage", "namespace", since, ""],
    queryFn: () => unwrap(api.GET("/api/v1/accounts/report", { params: { query: { by: "namespace", since } } })),
    retry: false,
  }).data;
  const { capacity, free } = overview?.facts ?? {};
  const gpus = view?.gpus ?? capacity?.gpus ?? 0;
  const held = view ? (view.gpus_held ?? 0) : (capacity?.gpus ?? 0) - (free?.gpus ?? 0);
  return (
    <StatCards
      label="At a glance"
      stats={[
        { label: "GPUs allocated", value: gpus ? `${held} of ${gpus}` : "–", note: gpus ? percent(held / gpus) : view ? "No GPUs in this cluster" : "No GPUs on this machine" },
        { label: "Queue depth", value: overview?.counts["Queued"] ?? 0, note: `${overview?.counts["Running"] ?? 0} running` },
        {
          label: "Failure rate, 7 days",
          value: failures?.ended ? percent(failures.failed / failures.ended) : "–",
          note: failures ? `${failures.failed} of ${failures.ended} jobs` : "",
        },
        { label: `Spend, ${MONTH_DAYS} days`, value: spend && (spend.total.cost || spend.total.currency) ? priceOf(spend.total) : "–", note: spend?.total.currency ? "" : "No hourly rates set" },
      ]}
    />
  );
}

function Cluster({ view }: { view: ClusterView }) {
  const running = (jobs: Readonly<Record<string, number>> | undefined): number => ["Pending", "Initializing", "Running"].reduce((sum, phase) => sum + (jobs?.[phase] ?? 0), 0);
  return (
    <>
      {(view.alerts ?? []).map((alert) => (
        <Alert key={alert.namespace + alert.message} isInline component="p" variant={alert.percent >= 100 ? "danger" : "warning"} title={alert.message} />
      ))}
      <Section title="Projects">
        <DataTable
          label="Projects"
          columns={["Project", "Running", "Queued", "Failed", "GPUs", "Tightest limit", "Queues"]}
          rows={(view.namespaces ?? []).map((project) => [
            project.name,
            String(running(project.jobs)),
            String(project.jobs?.["Queued"] ?? 0),
            String(project.jobs?.["Failed"] ?? 0),
            String(project.gpus ?? 0),
            tightest(project.lines ?? []).text,
            (project.queues ?? []).join(", ") || "–",
          ])}
          sortBy={(view.namespaces ?? []).map((project) => [
            project.name,
            running(project.jobs),
            project.jobs?.["Queued"] ?? 0,
            project.jobs?.["Failed"] ?? 0,
            project.gpus ?? 0,
            tightest(project.lines ?? []).share,
            (project.queues ?? []).length,
          ])}
          file="projects"
        />
      </Section>
      {view.queues?.length ? (
        <Section title="Cluster queues">
          <DataTable
            label="Cluster queues"
            columns={["Queue", "Cohort", "Running", "Queued", "Tightest limit", "Accepting jobs"]}
            rows={view.queues.map((queue) => [
              queue.name,
              queue.cohort || "–",
              String(queue.running ?? 0),
              String(queue.waiting ?? 0),
              tightest(queue.lines ?? []).text,
              queue.active === false ? "No" : "Yes",
            ])}
          />
        </Section>
      ) : null}
      {view.preemptions?.length ? (
        <Section title="Preempted jobs">
          <DataTable
            label="Preempted jobs"
            columns={["Time", "Job", "Reason"]}
            rows={view.preemptions.map((one) => [
              one.time ? <Time key="time" at={one.time} /> : "–",
              <Link key="job" to={jobPath({ namespace: one.namespace ?? "", name: one.job ?? "" })}>{`${one.namespace}/${one.job}`}</Link>,
              one.message ?? "",
            ])}
          />
        </Section>
      ) : null}
      {view.unread?.length ? <p className={styles["subtle"]}>No access to: {view.unread.join(", ")}.</p> : null}
    </>
  );
}

/** The limit of which the largest share is in use. */
function tightest(limits: readonly Limit[]): { text: string; share: number } {
  const [first] = limits.filter((limit) => limit.most > 0).sort((one, other) => other.used / other.most - one.used / one.most);
  if (!first) return { text: "–", share: -1 };
  const share = first.used / first.most;
  return { text: `${percent(share)} of ${first.resource} (${first.source})`, share };
}
