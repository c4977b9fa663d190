import { Card, CardBody, CardTitle, ClipboardCopy, Progress } from "@patternfly/react-core";
import CheckCircleIcon from "@patternfly/react-icons/dist/esm/icons/check-circle-icon";
import CircleIcon from "@patternfly/react-icons/dist/esm/icons/outlined-circle-icon";
import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Link } from "react-router-dom";
import { api, unwrap, type JobRow } from "../api/client";
import { jobPath } from "../lib/links";
import { useVisited } from "../lib/visited";
import { storeDraft } from "../wizard/draftStore";
import styles from "./pages.module.css";

const NAME = "first-steps";
const HELLO = `name: ${NAME}\nworkers: 2\ncommand: [sh, -c, 'echo hello from rank $MPIJOB_RANK']\nresources: {cpu: 500m, memory: 128Mi}\n`;
const HUNGRY = `name: out-of-memory
workers: 2
command: [python3, -c, "kept = b'x' * (200 << 20); import time; time.sleep(2)"]
resources: {cpu: 500m, memory: 128Mi}
`;
const CREATE = "/create?step=review";

interface Step {
  readonly title: string;
  readonly isDone: boolean;
  readonly content: ReactNode;
}

const linkTo = (row: JobRow, text: string, tab: "overview" | "logs" = "overview") => <Link to={jobPath(row, tab)}>{text}</Link>;

/** The first half hour: a step is ticked off by what really happened. */
export function Quickstart() {
  const jobs = useQuery({ queryKey: ["jobs", "quickstart"], queryFn: () => unwrap(api.GET("/api/v1/trainjobs", { params: { query: { limit: 200 } } })), refetchInterval: 5000 });
  const visited = useVisited();
  const rows = jobs.data?.items ?? [];
  const shown = rows.find((row) => row.name === NAME) ?? rows[0];
  const failed = rows.find((row) => row.phase === "Failed");
  const isFixed = rows.some((row) => row.phase === "Succeeded" && rows.some((other) => other.phase === "Failed" && row.name.startsWith(`${other.name}-`) && row.created > other.created));
  const steps: readonly Step[] = [
    {
      title: "Create a job",
      isDone: rows.length > 0,
      content: (
        <>
          <Link to={CREATE} onClick={() => storeDraft({ text: HELLO })}>
            Open a ready-made two-worker job
          </Link>
          , review it and create it.
          <ClipboardCopy isReadOnly hoverTip="Copy" clickTip="Copied" textAriaLabel="CLI command">
            {`mpijob create ${NAME} --workers 2 --cpu 500m --memory 128Mi -- sh -c 'echo hello from rank $MPIJOB_RANK'`}
          </ClipboardCopy>
        </>
      ),
    },
    {
      title: "Watch it finish",
      isDone: rows.some((row) => row.phase === "Succeeded"),
      content: shown ? linkTo(shown, `Watch ${shown.name}`) : "It will appear under Training jobs.",
    },
    { title: "Read the logs", isDone: visited.has("logs"), content: shown ? linkTo(shown, "Open its logs", "logs") : "Each line is tagged with its rank." },
    {
      title: "See why a job failed",
      isDone: Boolean(failed) && visited.has("why"),
      content: failed ? (
        linkTo(failed, `Why ${failed.name} failed`)
      ) : (
        <Link to={CREATE} onClick={() => storeDraft({ text: HUNGRY })}>
          Create a job that runs out of memory
        </Link>
      ),
    },
    {
      title: "Fix it and rerun",
      isDone: isFixed,
      content: failed ? linkTo(failed, "Use “Apply and rerun” on the failed job") : "The change is shown before anything starts.",
    },
  ];
  const done = steps.filter((step) => step.isDone).length;
  return (
    <Card component="section" aria-label="Getting started">
      <CardTitle component="h2">Your first half hour</CardTitle>
      <CardBody className={styles["column"]}>
        <Progress id="quickstart" title="Progress" value={(100 * done) / steps.length} label={`${done} of ${steps.length}`} />
        <ol className={styles["steps"]} aria-label="Getting started">
          {steps.map(({ title, isDone, content }) => (
            <li key={title} data-done={isDone}>
              {isDone ? <CheckCircleIcon className={styles["done"] ?? ""} /> : <CircleIcon className={styles["todo"] ?? ""} />}
              <div>
                <strong>{title}</strong>
                <span className="pf-v6-screen-reader">{isDone ? " (done)" : " (to do)"}</span>
                <div>{content}</div>
              </div>
            </li>
          ))}
        </ol>
      </CardBody>
    </Card>
  );
}
