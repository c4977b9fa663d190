import { Breadcrumb, BreadcrumbItem, Button, Flex, FlexItem, Label, PageSection, Title } from "@patternfly/react-core";
import LinkIcon from "@patternfly/react-icons/dist/esm/icons/link-icon";
import { useEffect, useState } from "react";
import { Link, useNavigate } from "react-router-dom";
import { jobUrl, type Action, type JobDetail } from "../api/client";
import { useAccount, useRuns, useDiagnosis } from "../api/queries";
import { ActionMenu } from "../components/ActionMenu";
import { StatusLabel } from "../components/PhaseLabel";
import { SelectMenu } from "../components/SelectMenu";
import { ACTION_LABELS, useJobActions, useRefusals } from "../jobs/actions";
import { isApplicable } from "../lib/fixes";
import { cost as costText, duration, plural } from "../lib/format";
import { sizeText, workersText } from "../lib/workers";
import { useNow } from "../lib/hooks";
import { clonePath, jobPath } from "../lib/links";
import { isFinal } from "../lib/phases";
import { useApplyFix } from "./applyFix";
import { useJobPage } from "./context";
import { runChoices } from "./runs";
import styles from "./job.module.css";

const BUSY: readonly JobDetail["row"]["phase"][] = ["Queued", "Pending", "Initializing", "Running"];

/** Name, status and size of the job; the one action that it calls for, and a menu of the others. */
export function JobHeader({ isSlim }: { isSlim: boolean }) {
  const { detail, row } = useJobPage();
  return (
    <PageSection hasBodyWrapper={false} className={styles["header"]}>
      {isSlim ? null : (
        <Breadcrumb>
          <BreadcrumbItem render={() => <Link to="/jobs">Training jobs</Link>} />
          <BreadcrumbItem isActive>{row.name}</BreadcrumbItem>
        </Breadcrumb>
      )}
      <Flex justifyContent={{ default: "justifyContentSpaceBetween" }} alignItems={{ default: "alignItemsCenter" }} rowGap={{ default: "rowGapSm" }}>
        <FlexItem className={styles["titleArea"]}>
          <Title headingLevel="h1" size={isSlim ? "lg" : "2xl"} className={styles["title"]}>
            {row.name}
          </Title>
          <span data-testid="status">
            <StatusLabel row={row} />
          </span>
          {isSlim ? null : (
            <Label variant="outline" isCompact>
              {row.kind}
            </Label>
          )}
          <RunSelect />
        </FlexItem>
        <FlexItem>
          <HeaderActions />
        </FlexItem>
      </Flex>
      {isSlim ? null : <Summary detail={detail} />}
    </PageSection>
  );
}

const BETWEEN = "\u00a0· "; // a line ends with the dot

/** Size, run time and cost in one line, and the link to this view. */
function Summary({ detail }: { detail: JobDetail }) {
  const { row, spec } = detail;
  const now = useNow();
  const account = useAccount(row).data;
  const cost = account?.cost ? `${costText(account.cost, account.currency)}${isFinal(row.phase) ? "" : " so far"}` : "";
  const parts = [
    row.namespace,
    row.owner.split(":").at(-1),
    spec.groups?.length ? `${plural(row.workers, "worker")}: ${workersText(spec, row.workers)}` : `${plural(row.workers, "worker")} × (${sizeText(spec.resources ?? {})})`,
    row.started === null ? "" : duration((row.released ?? row.finished ?? now) - row.started),
  ];
  return (
    <Flex justifyContent={{ default: "justifyContentSpaceBetween" }} alignItems={{ default: "alignItemsCenter" }}>
      <FlexItem className={styles["summary"]} data-testid="summary">
        {parts.filter(Boolean).join(BETWEEN)}
        {cost ? (
          <>
            {BETWEEN}
            <span data-testid="cost">{cost}</span>
          </>
        ) : null}
      </FlexItem>
      <FlexItem>
        <CopyLink />
      </FlexItem>
    </Flex>
  );
}

const COPIED_MS = 2000;

/** Copies the address of exactly what is shown: tab, filters and find text are part of it. */
function CopyLink() {
  const [copied, setCopied] = useState(false);
  useEffect(() => {
    if (!copied) return undefined;
    const timer = window.setTimeout(() => setCopied(false), COPIED_MS);
    return () => window.clearTimeout(timer);
  }, [copied]);
  const copy = (): void => void navigator.clipboard.writeText(window.location.href).then(() => setCopied(true));
  return (
    <Button variant="link" isInline icon={<LinkIcon />} onClick={copy}>
      <span aria-live="polite">{copied ? "Link copied" : "Copy link"}</span>
    </Button>
  );
}

function HeaderActions() {
  const { detail, row } = useJobPage();
  const navigate = useNavigate();
  const refusal = useRefusals(row.namespace);
  const { begin, dialog } = useJobActions((action) => {
    if (action === "delete") void navigate("/jobs");
    else if (action === "retry") void navigate(jobPath(row));
  });
  const diagnosis = useDiagnosis(row, row.phase === "Failed");
  const fix = diagnosis.data?.fixes?.find(isApplicable);
  const applyFix = useApplyFix(detail);
  const can = (action: Action): boolean => row.actions.includes(action);
  const item = (action: Action) => ({ label: ACTION_LABELS[action], refusal: refusal(action), isDanger: action === "delete", onClick: () => begin(action, [row]) });

  const primary = (): { label: string; action: Action; onClick: () => void; variant: "primary" | "secondary" } | null => {
    const to = (action: Action, variant: "primary" | "secondary" = "primary", label = ACTION_LABELS[action]) => ({ label, action, variant, onClick: () => begin(action, [row]) });
    if (row.phase === "Failed" && fix) return { label: "Fix and rerun", action: "clone", variant: "primary", onClick: () => applyFix.ask(fix) };
    if (BUSY.includes(row.phase) && can("cancel")) return to("cancel", "secondary");
    if (row.phase === "Suspended" && can("resume")) return to("resume");
    if (row.phase === "Failed" || row.phase === "Cancelled") return can("retry") ? to("retry") : null;
    return can("clone") ? { ...to("clone"), onClick: () => void navigate(clonePath(row)) } : null;
  };
  const main = primary();
  const others = (actions: readonly Action[]) => actions.filter((action) => can(action) && (action !== main?.action || main.label !== ACTION_LABELS[action])).map(item);
  const reason = main ? refusal(main.action) : "";
  return (
    <Flex gap={{ default: "gapSm" }}>
      {main ? (
        <Button variant={main.variant} isAriaDisabled={Boolean(reason)} {...(reason ? { title: reason } : {})} onClick={main.onClick}>
          {main.label}
        </Button>
      ) : null}
      <ActionMenu
        label="Actions"
        groups={[
          others(["clone", "retry", "resume", "suspend", "cancel"]),
          [
            { label: "Download YAML", href: jobUrl(row, "export"), download: `${row.name}.yaml` },
            { label: "Download logs", href: jobUrl(row, "logs", { format: "text" }), download: `${row.name}.log` },
            { label: "Download support bundle", href: jobUrl(row, "bundle"), download: `${row.name}-bundle.tar.gz`, description: "Logs, events, usage and configuration of the job; secrets are masked" },
          ],
          others(["delete"]),
        ]}
      />
      {dialog}
      {applyFix.dialog}
    </Flex>
  );
}

/** The jobs that have had this name, and their attempts: each has its own page. */
function RunSelect() {
  const { row, tab } = useJobPage();
  const navigate = useNavigate();
  const choices = runChoices(useRuns(row).data?.items ?? []);
  if (choices.length < 2) return null;
  const shown = choices.find(({ uid, attempt, isLast }) => uid === row.uid && (row.shownAttempt ? attempt === row.shownAttempt : isLast));
  return (
    <SelectMenu
      label="Run"
      value={shown?.value ?? ""}
      options={choices}
      size="sm"
      onChange={(value) => {
        const choice = choices.find((one) => one.value === value);
        if (choice) void navigate(jobPath(row, tab, choice.query));
      }}
    />
  );
}
