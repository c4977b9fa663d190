import { Card, CardBody, CardTitle, PageSection, Progress, ProgressMeasureLocation, Title } from "@patternfly/react-core";
import { Table, Tbody, Td, Th, Thead, Tr } from "@patternfly/react-table";
import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Link } from "react-router-dom";
import { api, take, type JobRow, type Overview } from "../api/client";
import { ProblemAlert } from "../components/ProblemAlert";
import { useNow, useTitle } from "../hooks";
import { ago, bytes, duration, plural } from "../words";

/** The place at a glance: what is free, who waits and what for, who uses it, what fails. */
export function Glance() {
  useTitle("Queues and quota");
  const now = useNow();
  const glance = useQuery({ queryKey: ["glance"], queryFn: () => take(api.GET("/api/v1/overview")), refetchInterval: 5000 });
  const told = glance.data;
  return (
    <>
      <PageSection>
        <Title headingLevel="h1">Queues and quota</Title>
        {told ? <p>{told.room}</p> : null}
      </PageSection>
      <PageSection isFilled>
        {glance.error ? <ProblemAlert error={glance.error} /> : null}
        {told ? (
          <div className="stack">
            <Part title="In use">
              <Usage told={told as Overview} />
            </Part>
            <Part title={`Waiting: ${plural(told.waiting.length, "job")}`}>
              {told.waited_seconds === null ? null : <p>Jobs here began after {duration(told.waited_seconds)} (median).</p>}
              {told.waiting.length ? (
                <Rows
                  label="Waiting jobs in order"
                  head={["Place", "Job", "Owner", "Waiting", "What for", "About"]}
                  rows={told.waiting.map((one) => [
                    String(one.position ?? "–"),
                    <JobLink key="job" row={one.row} />,
                    one.row.owner,
                    ago(one.row.created, now).replace(" ago", ""),
                    one.row.why,
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

function Part({ title, children }: { title: string; children: ReactNode }) {
  return (
    <Card component="section" aria-label={title}>
      <CardTitle component="h2">{title}</CardTitle>
      <CardBody>{children}</CardBody>
    </Card>
  );
}

const JobLink = ({ row }: { row: JobRow }) => <Link to={`/jobs/${row.namespace}/${row.name}`}>{row.name}</Link>;

function Usage({ told }: { told: Overview }) {
  const { capacity, free, quota, room_known: known } = told.facts;
  const used = (all: number, left: number): number => Math.max(0, all - left);
  const bars: [string, number, number, (value: number) => string][] =
    known === false
      ? []
      : [
          ["Cores", used(capacity.cores ?? 0, free.cores ?? 0), capacity.cores ?? 0, (value) => value.toFixed(1)],
          ["Memory", used(capacity.memory_bytes ?? 0, free.memory_bytes ?? 0), capacity.memory_bytes ?? 0, bytes],
          ["GPUs", used(capacity.gpus ?? 0, free.gpus ?? 0), capacity.gpus ?? 0, String],
        ];
  const limits: typeof bars = quota
    ? [
        ["Quota: cores", quota.used?.cores ?? 0, quota.cores ?? 0, (value) => value.toFixed(1)],
        ["Quota: memory", quota.used?.memory_bytes ?? 0, quota.memory_bytes ?? 0, bytes],
        ["Quota: GPUs", quota.used?.gpus ?? 0, quota.gpus ?? 0, String],
        ["Quota: jobs", quota.jobs_running ?? 0, quota.jobs ?? 0, String],
      ]
    : [];
  const shown = [...bars, ...limits].filter(([, , all]) => all > 0);
  if (!shown.length) return <p>How much there is may not be seen here.</p>;
  return (
    <div className="stack">
      {shown.map(([word, now, all, words]) => (
        <Progress
          key={word}
          id={`use-${word.replace(/\W+/g, "-")}`}
          title={word}
          value={Math.min(100, (100 * now) / all)}
          label={`${words(now)} of ${words(all)}`}
          measureLocation={ProgressMeasureLocation.top}
          variant={now > all ? "danger" : undefined}
        />
      ))}
    </div>
  );
}

function Shares({ label, shares }: { label: string; shares: Overview["owners"] }) {
  return (
    <Rows
      label={label}
      head={["Name", "Jobs", "Going on", "Failed", "Worker hours"]}
      rows={shares.map((one) => [one.name, String(one.jobs), String(one.going), String(one.failed), (one.busy_seconds / 3600).toFixed(2)])}
    />
  );
}

function Rows({ label, head, rows }: { label: string; head: readonly string[]; rows: readonly (readonly ReactNode[])[] }) {
  return (
    <Table aria-label={label} variant="compact">
      <Thead>
        <Tr>
          {head.map((word) => (
            <Th key={word} modifier="nowrap">
              {word}
            </Th>
          ))}
        </Tr>
      </Thead>
      <Tbody>
        {rows.map((cells, at) => (
          <Tr key={at}>
            {cells.map((cell, column) => (
              <Td key={column} dataLabel={head[column]} modifier="breakWord">
                {cell}
              </Td>
            ))}
          </Tr>
        ))}
      </Tbody>
    </Table>
  );
}
