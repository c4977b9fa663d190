import { ClipboardCopy, Progress } from "@patternfly/react-core";
import CheckCircleIcon from "@patternfly/react-icons/dist/esm/icons/check-circle-icon";
import CircleIcon from "@patternfly/react-icons/dist/esm/icons/outlined-circle-icon";
import { useQuery } from "@tanstack/react-query";
import { useSyncExternalStore, type ReactNode } from "react";
import { Link } from "react-router-dom";
import { api, take } from "../api/client";
import { Part } from "../components/Part";
import { keep } from "../wizard/kept";
import { doneOf, subscribe } from "../done";

const NAME = "first-steps";
const YAML = `name: ${NAME}\nworkers: 2\ncommand: [sh, -c, 'echo hello from rank $MPIJOB_RANK']\nresources: {cpu: 500m, memory: 128Mi}\n`;

const HUNGRY = `name: wants-memory
workers: 2
command: [python3, -c, "kept = b'x' * (200 << 20); import time; time.sleep(2)"]
resources: {cpu: 500m, memory: 128Mi}
`;

/** The first half hour: each step is ticked by what is really there, not by whoever reads. */
export function Quickstart() {
  const jobs = useQuery({ queryKey: ["jobs", "quickstart"], queryFn: () => take(api.GET("/api/v1/trainjobs", { params: { query: { limit: 200 } } })) });
  const kept = useSyncExternalStore(subscribe, doneOf);
  const rows = jobs.data?.items ?? [];
  const first = rows.find((row) => row.name === NAME);
  const any = first ?? rows[0];
  const failed = rows.find((row) => row.phase === "Failed");
  const mended = rows.some((row) => failed && row.phase === "Succeeded" && row.created > failed.created);
  const steps: [string, boolean, ReactNode][] = [
    [
      "Create a job",
      rows.length > 0,
      <>
        <Link to="/create?step=review" onClick={() => keep({ text: YAML })}>
          Open the wizard with a job of two workers
        </Link>, look at the plan, create it.
        <ClipboardCopy isReadOnly hoverTip="Copy" clickTip="Copied" textAriaLabel="The same on the command line">
          {`mpijob create ${NAME} --workers 2 --cpu 500m --memory 128Mi -- sh -c 'echo hello from rank $MPIJOB_RANK'`}
        </ClipboardCopy>
      </>,
    ],
    ["See it succeed", rows.some((row) => row.phase === "Succeeded"), any ? <Link to={`/jobs/${any.namespace}/${any.name}`}>Watch {any.name}</Link> : "It appears under Training jobs by itself."],
    ["Read what the ranks said", kept.has("logs"), any ? <Link to={`/jobs/${any.namespace}/${any.name}/logs`}>Open its logs</Link> : "Every line says which rank wrote it."],
    [
      "Let one fail, and read why",
      Boolean(failed) && kept.has("why"),
      failed ? (
        <Link to={`/jobs/${failed.namespace}/${failed.name}`}>Why {failed.name} failed</Link>
      ) : (
        <Link to="/create?step=review" onClick={() => keep({ text: HUNGRY })}>
          Create a job that wants more memory than it has
        </Link>
      ),
    ],
    ["Clone it with the fix", mended, failed ? <Link to={`/jobs/${failed.namespace}/${failed.name}`}>“Clone with this change” stands under the cause</Link> : "The change is shown before anything starts."],
  ];
  const ticked = steps.filter(([, is]) => is).length;
  return (
    <Part title="First steps">
      <Progress id="quickstart" title="First steps" value={(100 * ticked) / steps.length} label={`${ticked} of ${steps.length}`} />
      <ol className="quickstart" aria-label="First steps">
        {steps.map(([title, is, text]) => (
          <li key={title} data-done={is}>
            {is ? <CheckCircleIcon className="ticked" /> : <CircleIcon />}
            <div>
              <strong>{title}</strong>
              <span className="pf-v6-screen-reader">{is ? " (done)" : " (to do)"}</span>
              <div>{text}</div>
            </div>
          </li>
        ))}
      </ol>
    </Part>
  );
}
