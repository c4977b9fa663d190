import { ActionList, ActionListItem, Button } from "@patternfly/react-core";
import { Link, useNavigate } from "react-router-dom";
import type { Fix } from "../api/client";
import { CopyButton } from "../components/CopyButton";
import { useJobActions, useRefusals } from "../jobs/actions";
import { actionOf, fixText, isApplicable, type FixAction } from "../lib/fixes";
import { clonePath, jobPath } from "../lib/links";
import { useJobPage } from "./context";
import styles from "./job.module.css";

interface Props {
  fixes: readonly Fix[];
  /** What to do where there is no numbered fix. */
  hint: string;
  onApply: (fix: Fix) => void;
}

/** What to do, the most promising first: a change that the page applies, or the place where it is done. */
export function FixList({ fixes, hint, onApply }: Props) {
  const { row } = useJobPage();
  const refusal = useRefusals(row.namespace)("clone");
  if (!fixes.length) return hint ? <p>{hint}</p> : null;
  return (
    <div>
      <h3 className={styles["subtitle"]}>How to fix it</h3>
      <ol className={styles["fixes"]} aria-label="How to fix it">
        {fixes.map((fix, index) => (
          <li key={fix.number}>
            {fixText(fix)}
            <ActionList className={styles["fixActions"]}>
              {isApplicable(fix) ? (
                <>
                  <ActionListItem>
                    <Button
                      size="sm"
                      variant={index ? "secondary" : "primary"}
                      isAriaDisabled={Boolean(refusal)}
                      {...(refusal ? { title: refusal } : {})}
                      onClick={() => onApply(fix)}
                    >
                      Apply and rerun
                    </Button>
                  </ActionListItem>
                  <ActionListItem>
                    <Button size="sm" variant="link" component={(props) => <Link {...props} to={clonePath(row, fix.number)} />}>
                      Review change
                    </Button>
                  </ActionListItem>
                </>
              ) : null}
              <PageAction action={actionOf(fix.command ?? "", row.name)} />
            </ActionList>
          </li>
        ))}
      </ol>
    </div>
  );
}

const LINKS = { stacks: "Capture stacks", events: "View events", metrics: "View metrics", workers: "View workers", configuration: "View configuration" } as const;

/** The control of the page that does what a fix names. */
function PageAction({ action }: { action: FixAction | null }) {
  const { row, path } = useJobPage();
  const navigate = useNavigate();
  const refusal = useRefusals(row.namespace);
  const { begin, dialog } = useJobActions((done) => {
    if (done === "retry") void navigate(jobPath(row));
  });
  if (!action) return null;
  const link = (to: string, label: string) => (
    <ActionListItem>
      <Button size="sm" variant="link" component={(props) => <Link {...props} to={to} />}>
        {label}
      </Button>
    </ActionListItem>
  );
  switch (action.kind) {
    case "retry":
    case "resume": {
      const { kind } = action;
      if (!row.actions.includes(kind)) return null;
      return (
        <ActionListItem>
          <Button size="sm" variant="secondary" isAriaDisabled={Boolean(refusal(kind))} onClick={() => begin(kind, [row])}>
            {kind === "retry" ? "Run again" : "Resume"}
          </Button>
          {dialog}
        </ActionListItem>
      );
    }
    case "logs":
      return link(path("logs", action.query), "View logs");
    case "queue":
      return link("/queues", "View queue");
    case "job":
      return link(jobPath({ namespace: row.namespace, name: action.name }), `View ${action.name}`);
    case "command":
      return (
        <ActionListItem>
          <CopyButton size="sm" label="Copy command" text={action.command} />
        </ActionListItem>
      );
    case "stacks":
      return link(path("workers", { stacks: "true" }), LINKS.stacks);
    default:
      return link(path(action.kind), LINKS[action.kind]);
  }
}
