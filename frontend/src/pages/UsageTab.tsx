import { Alert } from "@patternfly/react-core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, unwrap } from "../api/client";
import { DataTable } from "../components/DataTable";
import { ProblemAlert } from "../components/ProblemAlert";
import { Section } from "../components/Section";
import { SelectMenu } from "../components/SelectMenu";
import { StatCards } from "../components/StatCards";
import { UtilizationBar } from "../components/UtilizationBar";
import { decimal, money, percent } from "../lib/format";
import { useProject } from "../shell/project";
import { priceOf } from "./prices";
import styles from "./pages.module.css";

const GROUPS = [
  { value: "user", label: "Owner" },
  { value: "namespace", label: "Project" },
  { value: "day", label: "Day" },
  { value: "queue", label: "Queue" },
  { value: "program", label: "Program" },
  { value: "cause", label: "Failure cause" },
] as const;
const TIMES = [
  { value: "7", label: "Last 7 days" },
  { value: "30", label: "Last 30 days" },
  { value: "365", label: "Last year" },
] as const;
const DAY_SECONDS = 86400;
const hours = (value: number): string => decimal(value, value < 10 ? 2 : 0);

/** What was used and, where rates are set, what it cost: an estimate, with what was held without use. */
export function UsageTab() {
  const [project] = useProject();
  const [by, setBy] = useState("user");
  const [days, setDays] = useState("30");
  const since = Math.floor(Date.now() / 3_600_000) * 3600 - Number(days) * DAY_SECONDS;
  const report = useQuery({
    queryKey: ["usage", by, since, project],
    queryFn: () => unwrap(api.GET("/api/v1/accounts/report", { params: { query: { by, since, ...(project ? { namespace: project } : {}) } } })),
    retry: false,
    refetchInterval: 30_000,
  });
  const total = report.data?.total;
  const priced = Boolean(total && (total.currency || total.cost || Object.keys(total.costs ?? {}).length));
  const label = GROUPS.find(({ value }) => value === by)?.label ?? "Group";
  return (
    <div className={styles["column"]}>
      <div className={styles["toolbar"]}>
        <SelectMenu label="Group by" showsLabel value={by} options={GROUPS} onChange={setBy} />
        <SelectMenu label="Time" value={days} options={TIMES} onChange={setDays} />
      </div>
      {report.error ? <ProblemAlert error={report.error} /> : null}
      {total ? (
        <>
          <StatCards
            label="Usage in total"
            stats={[
              { label: "Jobs", value: total.jobs ?? 0, note: total.jobs ? `${percent((total.failed ?? 0) / total.jobs)} failed` : "" },
              { label: "Core hours", value: hours(total.core_hours ?? 0) },
              { label: "GPU hours", value: hours(total.gpu_hours ?? 0), note: total.idle_gpu_hours ? `${hours(total.idle_gpu_hours)} idle` : "" },
              { label: "Estimated cost", value: priced ? priceOf(total) : "–", note: priced ? "" : "Set hourly rates in the settings to see cost." },
            ]}
          />
          <Section title={priced ? "Usage and estimated cost" : "Usage"}>
            <DataTable
              label={`Usage by ${label.toLowerCase()}`}
              columns={[label, "Jobs", "Failed", "Core hours", "Memory (GiB-h)", "GPU hours", "Queue time (h)", ...(priced ? ["Cost"] : [])]}
              rows={(report.data?.rows ?? []).map((row) => [
                row.key.join(" ") || "–",
                String(row.jobs ?? 0),
                String(row.failed ?? 0),
                hours(row.core_hours ?? 0),
                hours(row.gib_hours ?? 0),
                hours(row.gpu_hours ?? 0),
                hours(row.queued_hours ?? 0),
                ...(priced ? [priceOf(row)] : []),
              ])}
              sortBy={(report.data?.rows ?? []).map((row) => [
                row.key.join(" "),
                row.jobs ?? 0,
                row.failed ?? 0,
                row.core_hours ?? 0,
                row.gib_hours ?? 0,
                row.gpu_hours ?? 0,
                row.queued_hours ?? 0,
                ...(priced ? [row.cost ?? 0] : []),
              ])}
              file={`usage-by-${by}`}
            />
          </Section>
        </>
      ) : null}
      <Budgets />
    </div>
  );
}

function Budgets() {
  const budgets = useQuery({ queryKey: ["budgets"], queryFn: () => unwrap(api.GET("/api/v1/budgets")), retry: false });
  const items = budgets.data?.items ?? [];
  if (!items.length) return null;
  return (
    <Section title="Budgets">
      {items.map((budget) => (
        <div key={budget.namespace} className={styles["column"]}>
          <UtilizationBar label={`${budget.namespace} budget, ${budget.month}`} used={budget.spent} total={budget.monthly} format={(value) => money(value, budget.currency ?? "")} />
          {budget.alert ? <Alert isInline isPlain variant="warning" component="p" title={budget.alert} /> : null}
        </div>
      ))}
    </Section>
  );
}
