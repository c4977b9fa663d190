import { Button, Flex, FlexItem } from "@patternfly/react-core";
import { Link, useNavigate } from "react-router-dom";
import type { Fix } from "../api/client";
import { CopyButton } from "../components/CopyButton";
import { useJobActions, useRefusals } from "../jobs/actions";
import { actionOf, fixText, isApplicable, type FixAction } from "../lib/fixes";
import { clonePath, jobPath } from "../lib/links";
import { applyLabel } from "./applyFix";
import { useJobPage } from "./context";
import styles from "./job.module.css";

interface Props {
  title?: string;
  fixes: readonly Fix[];
  /** What to do where there is no numbered fix. */
  hint: string;
  onApply: (fix: Fix) => void;
}

/** What to do, the most promising first: a change that the page applies, or the place where it is done. */
export function FixList({ title = "How to fix it", fixes, hint, onApply }: Props) {
  const { row } = useJobPage();
  const refusal = useRefusals(row.namespace)("clone");
  if (!fixes.length) return hint ? <p>{hint}</p> : null;
  return (
    <div>
      <h3 className={styles["subtitle"]}>{title}</h3>
      <ol className={styles["fixes"]} aria-label={title}>
        {fixes.map((fix, index) => (
          <li key={fix.number}>
            {fixText(fix) === labelOf(actionOf(fix.command ?? "", row.name)) ? null : fixText(fix)}
            <Flex gap={{ default: "gapSm" }} className={styles["fixActions"]}>
              {isApplicable(fix) ? (
                <>
                  <FlexItem>
                    <Button
                      size="sm"
                      variant={index ? "secondary" : "primary"}
                      isAriaDisabled={Boolean(refusal)}
                      {...(refusal ? { title: refusal } : {})}
                      onClick={() => onApply(fix)}
                    >
                      {applyLabel(row.phase)}
                    </Button>
                  </FlexItem>
                  <FlexItem>
                    <Button size="sm" variant="link" component={(props) => <Link {...props} to={clonePath(row, fix.number)} />}>
                      Review change
                    </Button>
                  </FlexItem>
                </>
              ) : null}
              <PageAction action={actionOf(fix.command ?? "", row.name)} />
            </Flex>
          </li>
        ))}
      </ol>
    </div>
  );
}

/** What the control of an action says, where that is a link within the page of the job. */
const labelOf = (action: FixAction | null): string => (action && action.kind in LINKS ? LINKS[action.kind as keyof typeof LINKS] : "");

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
    <FlexItem>
      <Button size="sm" variant="link" component={(props) => <Link {...props} to={to} />}>
        {label}
      </Button>
    </FlexItem>
  );
  switch (action.kind) {
    case "retry":
    case "resume": {
      const { kind } = action;
      if (!row.actions.includes(kind)) return null;
      return (
        <FlexItem>
          <Button size="sm" variant="secondary" isAriaDisabled={Boolean(refusal(kind))} onClick={() => begin(kind, [row])}>
            {kind === "retry" ? "Run again" : "Resume"}
          </Button>
          {dialog}
        </FlexItem>
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
        <FlexItem>
          <CopyButton size="sm" label="Copy command" text={action.command} />
        </FlexItem>
      );
    case "stacks":
      return link(path("workers", { stacks: "true" }), LINKS.stacks);
    default:
      return link(path(action.kind), LINKS[action.kind]);
  }
}
