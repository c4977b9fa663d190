import { Alert } from "@patternfly/react-core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router-dom";
import { addressOf, api, take, type JobDetail, type JobRow } from "../api/client";
import { Terms } from "../components/Terms";
import { Part } from "../components/Part";

const GROUPS: readonly (readonly [string, readonly string[]])[] = [
  ["What runs", ["name", "namespace", "description", "image", "command", "args", "programs", "script", "code", "env", "secrets", "volumes", "labels", "owner"]],
  ["Size", ["workers", "slots", "ranks", "cores_per_rank", "resources", "launcher"]],
  ["MPI", ["mpi", "launch", "census"]],
  ["Scheduling", ["queue", "priority", "placement", "network", "gang_timeout_seconds"]],
  ["When it fails or ends", ["retry", "deadline_seconds", "signal", "grace_seconds", "requeue_on_lost_worker", "keep_on_failure_seconds", "retention"]],
];

export function parts(value: unknown, path = ""): [string, string][] {
  if (typeof value === "object" && value !== null && !Array.isArray(value))
    return Object.entries(value).flatMap(([key, one]) => parts(one, path ? `${path}.${key}` : key));
  const words = Array.isArray(value) && value.every((one) => typeof one === "string") ? value.join(" ") : JSON.stringify(value);
  return [[path, typeof value === "string" ? value : (words ?? "")]];
}

/** The jobs that had this name, newest first; a job that was tried again by hand is a new one. */
export const useAttempts = (row: JobRow) =>
  useQuery({
    queryKey: ["job", row.namespace, row.name, "attempts", row.phase],
    queryFn: () => take(api.GET("/api/v1/trainjobs/{namespace}/{name}/attempts", { params: { path: { namespace: row.namespace, name: row.name } } })),
    retry: false,
  });

/** What was asked for, group by group, and how it differs from the attempt before; what has its default is left out. */
export function Configuration({ detail }: { detail: JobDetail }) {
  const all = parts(detail.spec);
  const attempts = useAttempts(detail.row).data?.items ?? [];
  const at = attempts.findIndex((one) => one.uid === detail.row.uid);
  const before = at >= 0 ? attempts[at + 1] : undefined;
  const known = GROUPS.flatMap(([, keys]) => keys);
  const groups = [...GROUPS, ["Other", all.map(([path]) => path.split(".")[0] ?? "").filter((key) => !known.includes(key))] as const];
  return (
    <div className="stack">
      {before ? <Against row={before} now={all} /> : null}
      {groups.map(([title, keys]) => {
        const entries = all.filter(([path]) => keys.includes(path.split(".")[0] ?? "")).map(([path, value]) => [path, value || "–"] as const);
        return entries.length ? (
          <Part key={title} title={title}>
            <Terms isHorizontal entries={entries} />
          </Part>
        ) : null;
      })}
    </div>
  );
}

function Against({ row, now }: { row: JobRow; now: readonly (readonly [string, string])[] }) {
  const { namespace, name } = row;
  const before = useQuery({
    queryKey: ["job", namespace, name, "at", row.uid],
    queryFn: () => take(api.GET("/api/v1/trainjobs/{namespace}/{name}", { params: addressOf(row) })),
    retry: false,
  });
  if (!before.data) return null;
  const [was, is] = [new Map(parts(before.data.spec)), new Map(now)];
  const differing = [...new Set([...was.keys(), ...is.keys()])].filter((path) => was.get(path) !== is.get(path));
  return (
    <Alert isInline variant="info" component="p" title={differing.length ? "Differs from the attempt before" : "The same as the attempt before"}>
      <ul>
        {differing.map((path) => (
          <li key={path}>
            {path}: {was.get(path) ?? "–"} → {is.get(path) ?? "–"}
          </li>
        ))}
      </ul>
      <Link to={`/jobs/${namespace}/${name}?uid=${row.uid}`}>The attempt before</Link>
    </Alert>
  );
}
