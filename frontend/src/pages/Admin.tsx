import { Alert, PageSection, Title } from "@patternfly/react-core";
import { useQuery } from "@tanstack/react-query";
import { useState, type ReactNode } from "react";
import { Link } from "react-router-dom";
import { api, problemOf, take } from "../api/client";
import { Choice } from "../components/Choice";
import { Meter } from "../components/Meter";
import { Part } from "../components/Part";
import { Rows } from "../components/Rows";
import { useTitle } from "../hooks";
import { usePlace } from "../queries";
import { moment, plural } from "../words";

/** What cannot be seen here says why; it is no fault of the page. */
function Told<T>({ found, children }: { found: { data: T | undefined; error: unknown }; children: (data: T) => ReactNode }) {
  if (found.error) {
    const problem = problemOf(found.error);
    return (
      <Alert isInline isPlain variant="info" component="p" title={problem.message}>
        {problem.hint}
      </Alert>
    );
  }
  return found.data === undefined ? null : <>{children(found.data)}</>;
}

/** For whoever runs the place: all projects, GPUs, alerts, what fails, who did what, how far the move is. */
export function Admin() {
  useTitle("Administration");
  const place = usePlace();
  return (
    <>
      <PageSection>
        <Title headingLevel="h1">Administration</Title>
      </PageSection>
      <PageSection isFilled>
        <div className="stack">
          {place.data?.cluster ? <Cluster /> : <p>Projects, queues and quotas of all are governed on a cluster; this is one machine.</p>}
          <Patterns />
          <Audit />
          {place.data?.cluster ? <Migration /> : null}
          <Opinions />
        </div>
      </PageSection>
    </>
  );
}

function Cluster() {
  const found = useQuery({ queryKey: ["cluster"], queryFn: () => take(api.GET("/api/v1/overview/cluster")), refetchInterval: 10000, retry: false });
  return (
    <Told found={found}>
      {(told) => (
        <>
          {(told.alerts ?? []).map((one) => (
            <Alert key={one.namespace + one.message} isInline component="p" variant={one.percent >= 100 ? "danger" : "warning"} title={one.message} />
          ))}
          <Part title="GPUs">
            {told.gpus ? <Meter word="GPUs held by jobs" used={told.gpus_held ?? 0} most={told.gpus} /> : <p>There are no GPUs here.</p>}
          </Part>
          <Part title="Projects">
            <Rows
              label="Projects"
              head={["Project", "Running", "Waiting", "Failed", "GPUs", "Fullest limit", "Queues"]}
              rows={(told.namespaces ?? []).map((one) => [
                one.name,
                String(["Pending", "Initializing", "Running"].reduce((sum, phase) => sum + (one.jobs?.[phase] ?? 0), 0)),
                String(one.jobs?.["Queued"] ?? 0),
                String(one.jobs?.["Failed"] ?? 0),
                String(one.gpus ?? 0),
                fullest(one.lines ?? []),
                (one.queues ?? []).join(", ") || "–",
              ])}
              file="projects"
            />
          </Part>
          {(told.queues ?? []).length ? (
            <Part title="Cluster queues">
              <Rows
                label="Cluster queues"
                head={["Queue", "Cohort", "Running", "Waiting", "Fullest limit", "Takes jobs"]}
                rows={(told.queues ?? []).map((one) => [
                  one.name,
                  one.cohort || "–",
                  String(one.running ?? 0),
                  String(one.waiting ?? 0),
                  fullest(one.lines ?? []),
                  one.active === false ? "no" : "yes",
                ])}
              />
            </Part>
          ) : null}
          {(told.preemptions ?? []).length ? (
            <Part title="Who had to make way">
              <Rows
                label="Preemptions"
                head={["When", "Job", "Why"]}
                rows={(told.preemptions ?? []).map((one) => [
                  one.time ? moment(one.time) : "–",
                  <Link key="job" to={`/jobs/${one.namespace}/${one.job}`}>{`${one.namespace}/${one.job}`}</Link>,
                  one.message ?? "",
                ])}
              />
            </Part>
          ) : null}
          {(told.unread ?? []).length ? <p className="under">Not to be seen here: {(told.unread ?? []).join(", ")}.</p> : null}
        </>
      )}
    </Told>
  );
}

function fullest(lines: readonly { source: string; resource: string; used: number; most: number }[]): string {
  const [first] = [...lines].filter((one) => one.most > 0).sort((one, other) => other.used / other.most - one.used / one.most);
  return first ? `${Math.round((100 * first.used) / first.most)} % of ${first.resource} (${first.source})` : "–";
}

function Patterns() {
  const [days, setDays] = useState("7");
  const found = useQuery({
    queryKey: ["patterns", days],
    queryFn: () => take(api.GET("/api/v1/patterns", { params: { query: { days: Number(days), least: 1 } } })),
    retry: false,
  });
  return (
    <Part title="What fails">
      <div className="filters">
        <Choice label="Time" value={days} options={[["1", "last day"], ["7", "last 7 days"], ["30", "last 30 days"]]} onChange={setDays} />
      </div>
      <Told found={found}>
        {(told) => (
          <>
            <p>{told.message}</p>
            {(told.patterns ?? []).length ? (
              <Rows
                label="Patterns of failures"
                head={["What", "Cause", "Jobs", "Owners", "What to do"]}
                rows={(told.patterns ?? []).map((one) => [
                  one.message,
                  one.code ?? "–",
                  <span key="jobs">
                    {plural(one.count, "job")}:{" "}
                    {one.jobs.slice(0, 3).map((job) => (
                      <Link key={job} to={`/jobs/${job}`}>
                        {job}{" "}
                      </Link>
                    ))}
                  </span>,
                  (one.owners ?? []).join(", "),
                  one.hint ?? "–",
                ])}
              />
            ) : null}
          </>
        )}
      </Told>
    </Part>
  );
}

function Audit() {
  const [refused, setRefused] = useState("");
  const found = useQuery({
    queryKey: ["audit", refused],
    queryFn: () => take(api.GET("/api/v1/audit", { params: { query: { limit: 50, refused: Boolean(refused) } } })),
    refetchInterval: 10000,
    retry: false,
  });
  return (
    <Part title="Who did what">
      <div className="filters">
        <Choice label="Which acts" value={refused} options={[["", "everything"], ["yes", "only what was refused"]]} onChange={setRefused} />
      </div>
      <Told found={found}>
        {(told) => (
          <>
            {told.own ? <p>Your own acts; administrators see everybody's.</p> : null}
            <Rows
              label="Audit, newest first"
              head={["When", "Who", "What", "Job", "Answer"]}
              rows={[...told.items].reverse().map((one) => [
                one.stageTimestamp,
                one.user.username,
                one.verb,
                [one.objectRef?.namespace, one.objectRef?.name].filter(Boolean).join("/") || "–",
                String(one.responseStatus?.code ?? "–"),
              ])}
              file="audit"
            />
          </>
        )}
      </Told>
    </Part>
  );
}

function Migration() {
  const found = useQuery({ queryKey: ["migration"], queryFn: () => take(api.GET("/api/v1/migration")), retry: false });
  return (
    <Part title="Moving from older MPIJobs">
      <Told found={found}>
        {(told) => {
          const all = told.rows.length + (told.moved ?? 0);
          return all ? (
            <>
              <Meter word="Moved" used={told.moved ?? 0} most={all} />
              <p>
                {told.ready} ready, {told.check} to be looked at, {told.blocked} blocked; {Math.round(100 * (told.automatic ?? 1))} % of the fields are converted without help.
              </p>
            </>
          ) : (
            <p>There are no older MPIJobs here.</p>
          );
        }}
      </Told>
    </Part>
  );
}

function Opinions() {
  const found = useQuery({ queryKey: ["opinions"], queryFn: () => take(api.GET("/api/v1/opinions")), retry: false });
  return (
    <Part title="Was the help helpful?">
      <Told found={found}>
        {(told) =>
          told.items.length ? (
            <Rows label="Opinions on help" head={["About", "Yes", "No"]} rows={told.items.map((one) => [one.topic, String(one.yes), String(one.no)])} file="opinions" />
          ) : (
            <p>Nobody has said anything yet.</p>
          )
        }
      </Told>
    </Part>
  );
}
