import { EmptyState, EmptyStateBody } from "@patternfly/react-core";
import CheckCircleIcon from "@patternfly/react-icons/dist/esm/icons/check-circle-icon";
import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router-dom";
import { api, unwrap, type JobRow, type Overview, type Waiting } from "../api/client";
import { useCapabilities } from "../api/queries";
import { DataTable } from "../components/DataTable";
import { ProblemAlert } from "../components/ProblemAlert";
import { Section } from "../components/Section";
import { StatCards } from "../components/StatCards";
import { UtilizationBar } from "../components/UtilizationBar";
import { basisText, startText } from "../lib/estimate";
import { age, bytes, decimal, duration, plural, roughly } from "../lib/format";
import { useNow } from "../lib/hooks";
import { jobPath } from "../lib/links";
import { useProject } from "../shell/project";
import styles from "./pages.module.css";

/** What is in use, the queues, and the jobs that wait in their order. */
export function QueueTab() {
  const now = useNow();
  const [project] = useProject();
  const cluster = useCapabilities().data?.cluster ?? false;
  const overview = useQuery({ queryKey: ["overview"], queryFn: () => unwrap(api.GET("/api/v1/overview")), refetchInterval: 5000 });
  if (overview.error) return <ProblemAlert error={overview.error} />;
  if (!overview.data) return null;
  const { counts, waited_seconds: waited } = overview.data;
  const waiting = overview.data.waiting.filter((one) => !project || one.row.namespace === project);
  const first = waiting.find((one) => one.estimate_seconds);
  return (
    <div className={styles["column"]}>
      <StatCards
        label="Queue at a glance"
        stats={[
          { label: "Running jobs", value: counts["Running"] ?? 0 },
          { label: "Queued jobs", value: counts["Queued"] ?? 0 },
          { label: "Median queue time", value: waited === null ? "–" : duration(waited) },
          { label: "Next start", value: first?.estimate_seconds ? `~${roughly(first.estimate_seconds)}` : "–", note: first ? [first.row.name, basisText(estimateOf(first))].filter(Boolean).join(" · ") : "No estimate yet" },
        ]}
      />
      <Section title={cluster ? "Cluster utilization" : "Machine utilization"}>
        <Utilization overview={overview.data} />
      </Section>
      <Section title={`Queued jobs (${waiting.length})`}>
        {waiting.length ? (
          <DataTable
            label="Queued jobs"
            columns={["Position", "Job", "Owner", "Requested", "Waiting", "Reason", "Jobs ahead", "Estimated start"]}
            rows={waiting.map((one, index) => [
              String(one.position ?? index + 1),
              <Link key="job" to={jobPath(one.row)}>
                {one.row.name}
              </Link>,
              one.row.owner.split(":").at(-1) ?? "",
              requested(one.row),
              age(Math.max(0, now - one.row.created)),
              one.row.why,
              String((one.position ?? index + 1) - 1),
              [startText(estimateOf(one)), basisText(estimateOf(one))].filter(Boolean).join(" · "),
            ])}
          />
        ) : (
          <EmptyState titleText="No jobs in the queue" headingLevel="h3" icon={CheckCircleIcon} variant="xs">
            <EmptyStateBody>A new job starts as soon as its resources are free.</EmptyStateBody>
          </EmptyState>
        )}
      </Section>
      <QueueList project={project} />
    </div>
  );
}

const estimateOf = (one: Waiting) => ({ seconds: one.estimate_seconds, span: one.range_seconds, basis: one.basis });
const requested = (row: JobRow): string => [plural(row.workers, "worker"), row.gpus ? plural(row.gpus, "GPU") : ""].filter(Boolean).join(", ");

function Utilization({ overview }: { overview: Overview }) {
  const { capacity, free, quota, room_known: isKnown } = overview.facts;
  const used = (all = 0, left = 0): number => Math.max(0, all - left);
  const bars: { label: string; used: number; total: number; format?: (value: number) => string }[] =
    isKnown === false
      ? []
      : [
          { label: "GPUs", used: used(capacity.gpus, free.gpus), total: capacity.gpus ?? 0 },
          { label: "CPU cores", used: used(capacity.cores, free.cores), total: capacity.cores ?? 0 },
          { label: "Memory", used: used(capacity.memory_bytes, free.memory_bytes), total: capacity.memory_bytes ?? 0, format: bytes },
        ];
  if (quota)
    bars.push(
      { label: "Quota: GPUs", used: quota.used?.gpus ?? 0, total: quota.gpus ?? 0 },
      { label: "Quota: CPU cores", used: quota.used?.cores ?? 0, total: quota.cores ?? 0 },
      { label: "Quota: memory", used: quota.used?.memory_bytes ?? 0, total: quota.memory_bytes ?? 0, format: bytes },
      { label: "Quota: jobs", used: quota.jobs_running ?? 0, total: quota.jobs ?? 0 },
    );
  const shown = bars.filter(({ total }) => total > 0);
  if (!shown.length) return <p>You don&apos;t have permission to view capacity.</p>;
  return (
    <div className={styles["meters"]}>
      {shown.map((bar) => (
        <UtilizationBar key={bar.label} {...bar} />
      ))}
    </div>
  );
}

/** The queues of the project, with how long jobs waited in each lately, and its limits. */
function QueueList({ project }: { project: string }) {
  const queues = useQuery({
    queryKey: ["queues", project],
    queryFn: () => unwrap(api.GET("/api/v1/queues", { params: { query: project ? { namespace: project } : {} } })),
    refetchInterval: 10_000,
    retry: false,
  });
  const named = (queues.data?.items ?? []).filter((queue) => queue.name);
  if (!queues.data || (!named.length && !queues.data.lines.length)) return null;
  return (
    <Section title={`Queues and limits of ${queues.data.namespace}`}>
      {named.length ? (
        <DataTable
          label="Queues"
          columns={["Queue", "Running", "Queued", "Median queue time", "Description"]}
          rows={named.map((queue) => [queue.name, String(queue.running), String(queue.waiting), duration(queue.waited_seconds), queue.text || "–"])}
        />
      ) : null}
      <div className={styles["meters"]}>
        {queues.data.lines.map((line) => (
          <UtilizationBar
            key={`${line.source}${line.resource}`}
            label={`${line.source}: ${line.resource}`}
            used={line.used}
            total={line.most}
            format={line.resource.includes("memory") ? bytes : decimal}
          />
        ))}
      </div>
    </Section>
  );
}
