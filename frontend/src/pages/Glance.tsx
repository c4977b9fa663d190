import { PageSection, Title } from "@patternfly/react-core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router-dom";
import { api, take, type JobRow } from "../api/client";
import { Meter } from "../components/Meter";
import { Part } from "../components/Part";
import { ProblemAlert } from "../components/ProblemAlert";
import { Rows } from "../components/Rows";
import { useNow, useTitle } from "../hooks";
import { ago, bytes, duration, plural } from "../words";
import { Costs } from "./Costs";

const useOverview = () => useQuery({ queryKey: ["glance"], queryFn: () => take(api.GET("/api/v1/overview")), refetchInterval: 5000 });
type Overview = NonNullable<ReturnType<typeof useOverview>["data"]>;

/** The place at a glance: what is free, who waits and what for, who uses it, what it costs, what fails. */
export function Glance() {
  useTitle("Queues, quota and cost");
  const now = useNow();
  const glance = useOverview();
  const told = glance.data;
  return (
    <>
      <PageSection>
        <Title headingLevel="h1">Queues, quota and cost</Title>
        {told ? <p>{told.room}</p> : null}
      </PageSection>
      <PageSection isFilled>
        {glance.error ? <ProblemAlert error={glance.error} /> : null}
        {told ? (
          <div className="stack">
            <Part title="In use">
              <InUse told={told} />
            </Part>
            <Queues />
            <Part title={`Waiting: ${plural(told.waiting.length, "job")}`}>
              {told.waited_seconds === null ? null : <p>Jobs here began after {duration(told.waited_seconds)} (median).</p>}
              {told.waiting.length ? (
                <Rows
                  label="Waiting jobs in order"
                  head={["Place", "Job", "Owner", "Needs", "Waiting", "What for", "Ahead of it", "About"]}
                  rows={told.waiting.map((one, at) => [
                    String(one.position ?? "–"),
                    <JobLink key="job" row={one.row} />,
                    one.row.owner,
                    needs(one.row),
                    ago(one.row.created, now).replace(" ago", ""),
                    one.row.why,
                    ahead(told.waiting.slice(0, at).map((other) => other.row)),
                    one.estimate_seconds === null ? "not enough history" : duration(one.estimate_seconds),
                  ])}
                />
              ) : (
                <p>Nobody waits.</p>
              )}
            </Part>
            <Part title="What fails">
              {told.patterns.length ? (
                <Rows
                  label="Causes of failures, most frequent first"
                  head={["Cause", "Jobs", "Newest", "What it said"]}
                  rows={told.patterns.map((one) => [one.cause, String(one.jobs), <JobLink key="job" row={one.newest} />, one.newest.why])}
                />
              ) : (
                <p>No job on record has failed.</p>
              )}
            </Part>
            <Costs />
            <Part title="By owner">
              <Shares label="Jobs by owner" shares={told.owners} />
            </Part>
            {told.namespaces.length > 1 ? (
              <Part title="By project">
                <Shares label="Jobs by project" shares={told.namespaces} />
              </Part>
            ) : null}
          </div>
        ) : null}
      </PageSection>
    </>
  );
}

const JobLink = ({ row }: { row: JobRow }) => <Link to={`/jobs/${row.namespace}/${row.name}`}>{row.name}</Link>;
const needs = (row: JobRow): string => [plural(row.workers, "worker"), row.gpus ? plural(row.gpus, "GPU") : ""].filter(Boolean).join(", ");

function ahead(rows: readonly JobRow[]): string {
  if (!rows.length) return "nobody";
  const [workers, gpus] = [rows.reduce((sum, row) => sum + row.workers, 0), rows.reduce((sum, row) => sum + row.gpus, 0)];
  return `${plural(rows.length, "job")} with ${plural(workers, "worker")}${gpus ? `, ${plural(gpus, "GPU")}` : ""}`;
}

function InUse({ told }: { told: Overview }) {
  const { capacity, free, quota, room_known: known } = told.facts;
  const used = (all = 0, left = 0): number => Math.max(0, all - left);
  const all: [string, number, number, ((value: number) => string)?][] =
    known === false
      ? []
      : [
          ["Cores", used(capacity.cores, free.cores), capacity.cores ?? 0],
          ["Memory", used(capacity.memory_bytes, free.memory_bytes), capacity.memory_bytes ?? 0, bytes],
          ["GPUs", used(capacity.gpus, free.gpus), capacity.gpus ?? 0],
        ];
  if (quota)
    all.push(
      ["Quota: cores", quota.used?.cores ?? 0, quota.cores ?? 0],
      ["Quota: memory", quota.used?.memory_bytes ?? 0, quota.memory_bytes ?? 0, bytes],
      ["Quota: GPUs", quota.used?.gpus ?? 0, quota.gpus ?? 0],
      ["Quota: jobs", quota.jobs_running ?? 0, quota.jobs ?? 0],
    );
  const shown = all.filter(([, , most]) => most > 0);
  if (!shown.length) return <p>How much there is may not be seen here.</p>;
  return (
    <>
      {shown.map(([word, now, most, words]) => (
        <Meter key={word} word={word} used={now} most={most} {...(words ? { words } : {})} />
      ))}
    </>
  );
}

/** The queues of the project, with how long jobs waited in each lately. */
function Queues() {
  const found = useQuery({ queryKey: ["queues"], queryFn: () => take(api.GET("/api/v1/queues")), refetchInterval: 10000, retry: false });
  const told = found.data;
  const named = (told?.items ?? []).filter((one) => one.name);
  if (!told || (!named.length && !told.lines.length)) return null;
  return (
    <Part title={`Queues of ${told.namespace}`}>
      {named.length ? (
        <Rows
          label="Queues"
          head={["Queue", "Running", "Waiting", "Jobs waited (median)", "About it"]}
          rows={named.map((one) => [one.name, String(one.running), String(one.waiting), duration(one.waited_seconds), one.text || "–"])}
        />
      ) : null}
      {told.lines.map((line) => (
        <Meter
          key={`${line.source}${line.resource}`}
          word={`${line.source}: ${line.resource}`}
          used={line.used}
          most={line.most}
          {...(line.resource.includes("memory") ? { words: bytes } : {})}
        />
      ))}
    </Part>
  );
}

function Shares({ label, shares }: { label: string; shares: Overview["owners"] }) {
  return (
    <Rows
      label={label}
      head={["Name", "Jobs", "Going on", "Failed", "Worker hours"]}
      rows={shares.map((one) => [one.name, String(one.jobs), String(one.going), String(one.failed), (one.busy_seconds / 3600).toFixed(2)])}
      file={label.toLowerCase().replaceAll(" ", "-")}
    />
  );
}
