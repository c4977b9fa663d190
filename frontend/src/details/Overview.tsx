import { Progress, ProgressMeasureLocation } from "@patternfly/react-core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router-dom";
import { addressOf, api, take, type JobDetail } from "../api/client";
import { Part } from "../components/Part";
import { Terms } from "../components/Terms";
import { useNow } from "../hooks";
import { LastLines } from "../pages/Peek";
import { ago, duration, moment, plural } from "../words";
import { Markdown } from "../components/Markdown";
import { Steps } from "./Steps";
import { Timeline } from "./Timeline";
import { Why } from "./Why";
import { WorkerTiles } from "./Workers";

export function Overview({ detail }: { detail: JobDetail }) {
  const { state, spec, row } = detail;
  const now = useNow();
  const resources = spec.resources ?? {};
  const gpus = resources.gpu ?? 0;
  const sentence =
    `${plural(row.workers, "worker")} with ${resources.cpu ?? "1"} CPU and ${resources.memory ?? "1Gi"}` +
    `${gpus ? ` and ${plural(gpus, "GPU")}` : ""} each, ${plural(row.ranks, "rank")}${row.mpi ? ` on ${row.mpi}` : ""}`;
  const facts: [string, string | JSX.Element][] = [
    ["Resources", sentence],
    [spec.script ? "Script" : "Command", [...(spec.script ? [spec.script] : (spec.command ?? [])), ...(spec.args ?? [])].join(" ")],
    ["Waiting for", [state.waiting_for, state.queue_position ? `position ${state.queue_position}` : ""].filter(Boolean).join(", ")],
    ["May start in", state.wait_estimate_seconds && !row.started ? `about ${duration(state.wait_estimate_seconds)}` : ""],
    ["Message", row.phase === "Failed" ? "" : (state.message ?? "")],
    ["Owner", row.owner],
    ["Queue", row.queue],
    ["Priority", state.priority ? String(state.priority) : ""],
    ["Created", `${ago(row.created, now)} (${moment(row.created)})`],
    ["Attempt", `${row.attempt} of ${Math.max(row.attempt, state.attempts_allowed ?? 1)}`],
    ["Description", spec.description ? <Markdown text={spec.description} /> : ""],
  ];
  return (
    <div className="stack">
      <Why detail={detail} />
      <Part title="Timeline">
        <Timeline detail={detail} now={now} />
        <HowFar detail={detail} />
      </Part>
      {state.steps?.length ? (
        <Part title="Steps">
          <Steps detail={detail} now={now} />
        </Part>
      ) : null}
      <Part title="About">
        <Terms isHorizontal entries={facts.filter(([, value]) => value)} />
      </Part>
      <Part title="Workers">
        <WorkerTiles detail={detail} />
      </Part>
      <Part title="Last lines">
        <LastLines row={row} count={10} />
        <Link to={`/jobs/${row.namespace}/${row.name}/logs`}>View detailed logs</Link>
      </Part>
    </div>
  );
}

/** How far a training is, and when it will end, where its lines tell. */
function HowFar({ detail }: { detail: JobDetail }) {
  const { row } = detail;
  const curves = useQuery({
    queryKey: ["job", row.namespace, row.name, "curves", "far"],
    queryFn: () => {
      const { path, query } = addressOf(row);
      return take(api.GET("/api/v1/trainjobs/{namespace}/{name}/curves", { params: { path, query: { ...query, points: 1 } } }));
    },
    enabled: row.started !== null,
    refetchInterval: row.phase === "Running" ? 5000 : false,
    retry: false,
  });
  const told = curves.data;
  if (!told || told.progress === null || told.progress === undefined) return null;
  const steps = told.steps ? `step ${told.step ?? 0} of ${told.steps}` : told.epochs ? `epoch ${told.epoch ?? 0} of ${told.epochs}` : "";
  const rest = row.phase === "Running" && told.eta ? `ends in about ${duration(told.eta)}` : "";
  return (
    <Progress
      id="how-far"
      title="Progress"
      value={Math.round(100 * told.progress)}
      label={[`${Math.round(100 * told.progress)} %`, steps, rest].filter(Boolean).join(", ")}
      measureLocation={ProgressMeasureLocation.top}
    />
  );
}
