import {
  EmptyState,
  EmptyStateActions,
  EmptyStateBody,
  EmptyStateFooter,
  PageSection,
  Skeleton,
} from "@patternfly/react-core";
import SearchIcon from "@patternfly/react-icons/dist/esm/icons/search-icon";
import { lazy, Suspense, useEffect, useMemo, type ReactNode } from "react";
import { Link, useLocation, useNavigate, useParams, useSearchParams } from "react-router-dom";
import { ApiError, type JobDetail } from "../api/client";
import { useEvents, useJob } from "../api/queries";
import { PageLoading } from "../components/PageLoading";
import { PageTabs } from "../components/PageTabs";
import { ProblemAlert } from "../components/ProblemAlert";
import { usePageTitle } from "../lib/hooks";
import { capitalized } from "../lib/format";
import { JOB_TABS, type JobTab } from "../lib/links";
import { useToasts } from "../shell/toasts";
import { JobPageProvider, useJobPage } from "./context";
import { JobHeader } from "./JobHeader";
import { Overview } from "./Overview";

const Configuration = lazy(() => import("./Configuration"));
const Events = lazy(() => import("./Events"));
const Files = lazy(() => import("./Files"));
const LogsTab = lazy(() => import("../logs/LogsTab"));
const MetricsTab = lazy(() => import("../metrics/MetricsTab"));
const WorkersTab = lazy(() => import("../workers/WorkersTab"));

const CONTENTS = { overview: Overview, configuration: Configuration, workers: WorkersTab, logs: LogsTab, metrics: MetricsTab, events: Events, files: Files } as const;

/** Tabs as links of earlier versions call them. */
const RENAMED_TABS: Record<string, JobTab> = { artifacts: "files", yaml: "configuration" };

/** Details of one job, with its result and the reason first; every tab has its own URL. */
export function JobDetails() {
  const { namespace = "", name = "", tab = "overview" } = useParams();
  const [params] = useSearchParams();
  const uid = params.get("uid") ?? "";
  const attempt = Number(params.get("attempt")) || 0;
  usePageTitle(name);
  const job = useJob(namespace, name, uid, attempt);
  useCreatedMessage(name);
  const named = RENAMED_TABS[tab] ?? tab;
  const active: JobTab = (JOB_TABS as readonly string[]).includes(named) ? (named as JobTab) : "overview";
  const detail = job.data;
  const page = useMemo(() => (detail ? { detail: attempt ? ofAttempt(detail, attempt) : detail, uid, attempt, tab: active } : null), [detail, uid, attempt, active]);
  if (!page)
    return (
      <PageSection>
        <h1 className="pf-v6-screen-reader">{name}</h1>
        {isNotFound(job.error) ? <JobNotFound name={name} namespace={namespace} /> : job.error ? <ProblemAlert error={job.error} /> : <Skeleton height="12rem" screenreaderText="Loading the job" />}
      </PageSection>
    );
  return (
    <JobPageProvider value={page}>
      <JobHeader isSlim={active === "logs"} />
      <JobTabs active={active}>
        {job.error ? <ProblemAlert error={job.error} /> : null}
        <Content tab={active} />
      </JobTabs>
    </JobPageProvider>
  );
}

/** The job as an earlier attempt left it: it can be copied, and nothing else can be done with it. */
const ofAttempt = (detail: JobDetail, attempt: number): JobDetail => ({ ...detail, row: { ...detail.row, shownAttempt: attempt, actions: ["clone"] } });

const isNotFound = (error: unknown): boolean => error instanceof ApiError && error.status === 404;

function JobNotFound({ name, namespace }: { name: string; namespace: string }) {
  return (
    <EmptyState titleText={`Job ${name} not found`} headingLevel="h2" icon={SearchIcon}>
      <EmptyStateBody>
        There is no job of this name in the project {namespace}, and no record of one. It may have been deleted, or it may be in another project.
      </EmptyStateBody>
      <EmptyStateFooter>
        <EmptyStateActions>
          <Link to="/jobs">Go to training jobs</Link>
        </EmptyStateActions>
      </EmptyStateFooter>
    </EmptyState>
  );
}

/** Says that the job has just been created; the address alone says nothing of it. */
function useCreatedMessage(name: string): void {
  const { state, pathname, search } = useLocation();
  const navigate = useNavigate();
  const toast = useToasts();
  const created = Boolean((state as { created?: boolean } | null)?.created);
  useEffect(() => {
    if (!created) return;
    toast({ title: `${name} created` });
    void navigate(pathname + search, { replace: true, state: null });
  }, [created, name, navigate, pathname, search, toast]);
}

function JobTabs({ active, children }: { active: JobTab; children: ReactNode }) {
  const { detail, path } = useJobPage();
  const navigate = useNavigate();
  const warnings = (useEvents(detail.row).data?.items ?? []).filter((event) => (event.severity ?? "notice") !== "notice").length;
  const tabs = JOB_TABS.map((tab) => ({ key: tab, label: titleOf(tab, detail, warnings) }));
  return (
    <PageTabs label="Job details" tabs={tabs} active={active} onSelect={(tab) => void navigate(path(tab as JobTab))}>
      {children}
    </PageTabs>
  );
}

function titleOf(tab: JobTab, { row }: JobDetail, warnings: number): string {
  if (tab === "workers") return `Workers ${row.workers_ready}/${row.workers}`;
  if (tab === "events" && warnings) return `Events (${warnings} ${warnings === 1 ? "warning" : "warnings"})`;
  return capitalized(tab);
}

function Content({ tab }: { tab: JobTab }) {
  const Shown = CONTENTS[tab];
  return (
    <Suspense fallback={<PageLoading label="Loading" />}>
      <Shown />
    </Suspense>
  );
}
