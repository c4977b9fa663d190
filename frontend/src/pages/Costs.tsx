import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, take } from "../api/client";
import { Choice } from "../components/Choice";
import { Meter } from "../components/Meter";
import { Part } from "../components/Part";
import { ProblemAlert } from "../components/ProblemAlert";
import { Rows } from "../components/Rows";
import { plural } from "../words";

const BY = [["user", "by owner"], ["namespace", "by project"], ["day", "by day"], ["queue", "by queue"], ["program", "by program"], ["cause", "by cause of failure"]] as const;
const DAYS = [["7", "last 7 days"], ["30", "last 30 days"], ["365", "last year"]] as const;
const hours = (value: number): string => value.toFixed(value < 10 ? 2 : 0);

type Priced = { cost?: number; currency?: string; costs?: Record<string, number> };

/** What a group cost; different currencies are not added. */
function price({ cost, currency, costs }: Priced): string {
  const sums = Object.entries(costs ?? {});
  const told = sums.length ? sums.sort() : [[currency ?? "", cost ?? 0] as const];
  return told.map(([word, amount]) => `${amount.toFixed(2)} ${word}`.trim()).join(" + ");
}

/** What was used and, where somebody has set rates, what it cost: an estimate, and what was held without use. */
export function Costs() {
  const [by, setBy] = useState("user");
  const [days, setDays] = useState("30");
  const since = Math.floor(Date.now() / 3600000) * 3600 - Number(days) * 86400;
  const found = useQuery({
    queryKey: ["costs", by, since],
    queryFn: () => take(api.GET("/api/v1/accounts/report", { params: { query: { by, since } } })),
    retry: false,
    refetchInterval: 30000,
  });
  const budgets = useQuery({ queryKey: ["budgets"], queryFn: () => take(api.GET("/api/v1/budgets")), retry: false });
  const told = found.data;
  const priced = Boolean(told?.total.currency || told?.total.cost || Object.keys(told?.total.costs ?? {}).length);
  return (
    <Part title={priced ? "Used, and its cost (estimated)" : "Used"}>
      <div className="filters">
        <Choice label="Group by" value={by} options={BY} onChange={setBy} />
        <Choice label="Time" value={days} options={DAYS} onChange={setDays} />
      </div>
      {found.error ? <ProblemAlert error={found.error} /> : null}
      {told ? (
        <>
          <p>
            {plural(told.total.jobs ?? 0, "job")}, {hours(told.total.core_hours ?? 0)} core hours, {hours(told.total.gpu_hours ?? 0)} GPU hours
            {told.total.idle_gpu_hours ? `, ${hours(told.total.idle_gpu_hours)} of them idle` : ""}
            {priced ? `, about ${price(told.total)}` : ""}.
            {priced ? "" : " Whoever runs the place can set rates; then costs are estimated here."}
          </p>
          <Rows
            label="Use by group"
            head={["Group", "Jobs", "Failed", "Core hours", "Memory, GiB hours", "GPU hours", "Waited, hours", ...(priced ? ["Cost"] : [])]}
            rows={told.rows.map((row) => [
              row.key.join(" ") || "–",
              String(row.jobs ?? 0),
              String(row.failed ?? 0),
              hours(row.core_hours ?? 0),
              hours(row.gib_hours ?? 0),
              hours(row.gpu_hours ?? 0),
              hours(row.queued_hours ?? 0),
              ...(priced ? [price(row)] : []),
            ])}
            file={`use-by-${by}`}
          />
        </>
      ) : null}
      {(budgets.data?.items ?? []).map((one) => (
        <div key={one.namespace}>
          <Meter word={`Budget of ${one.namespace}, ${one.month}`} used={one.spent} most={one.monthly} words={(value) => `${value.toFixed(2)} ${one.currency ?? ""}`} />
          {one.alert ? <p>{one.alert}</p> : null}
        </div>
      ))}
    </Part>
  );
}
