import {
  Alert,
  AlertActionCloseButton,
  Breadcrumb,
  BreadcrumbItem,
  Button,
  ClipboardCopy,
  Flex,
  PageSection,
  Spinner,
  Tab,
  Tabs,
  TabTitleText,
  Title,
} from "@patternfly/react-core";
import { useQuery } from "@tanstack/react-query";
import { lazy, Suspense, useState } from "react";
import { Link, useLocation, useNavigate, useParams, useSearchParams } from "react-router-dom";
import { api, take, type Action, type JobDetail, type JobRow } from "../api/client";
import { useActions, useRefusals, WORDS } from "../components/Actions";
import { PhaseLabel } from "../components/PhaseLabel";
import { ProblemAlert } from "../components/ProblemAlert";
import { Artifacts } from "../details/Artifacts";
import { Configuration, useAttempts } from "../details/Configuration";
import { Events } from "../details/Events";
import { Logs } from "../logs/Logs";
import { Overview } from "../details/Overview";
import { Workers } from "../details/Workers";
import { Yaml } from "../details/Yaml";
import { useTitle } from "../hooks";
import { at } from "../where";
import { FINAL } from "../words";

const Metrics = lazy(() => import("../details/Metrics"));
const TABS = ["overview", "configuration", "workers", "logs", "metrics", "events", "artifacts", "yaml"] as const;
type TabName = (typeof TABS)[number];

/** One job: why it stands where it stands first, then everything else. Every tab has its own address. */
export function JobDetails() {
  const { namespace = "", name = "", tab = "overview" } = useParams();
  const navigate = useNavigate();
  const location = useLocation();
  const [created, setCreated] = useState(Boolean((location.state as { created?: boolean } | null)?.created));
  useTitle(name);
  const base = `/jobs/${namespace}/${name}`;
  const uid = useSearchParams()[0].get("uid") ?? "";
  const which = uid ? `?uid=${encodeURIComponent(uid)}` : "";
  const job = useQuery({
    queryKey: uid ? ["job", namespace, name, "at", uid] : ["job", namespace, name],
    queryFn: () =>
      take(api.GET("/api/v1/trainjobs/{namespace}/{name}", { params: { path: { namespace, name }, query: uid ? { uid } : {} } })),
    refetchInterval: (query) => (query.state.data && !FINAL.includes(query.state.data.row.phase) ? 3000 : 15000),
  });
  const { begin, question } = useActions((action) => {
    if (action === "delete") navigate("/jobs");
  });
  const refusal = useRefusals(namespace);
  const active: TabName = (TABS as readonly string[]).includes(tab) ? (tab as TabName) : "overview";
  const detail = job.data;
  return (
    <>
      <PageSection>
        <Breadcrumb>
          <BreadcrumbItem render={() => <Link to="/jobs">Training jobs</Link>} />
          <BreadcrumbItem isActive>{name}</BreadcrumbItem>
        </Breadcrumb>
        <div className="titled">
          <Flex>
            <Title headingLevel="h1">{name}</Title>
            {detail ? <PhaseLabel phase={detail.row.phase} /> : null}
            {detail && detail.row.attempt > 1 ? <span>attempt {detail.row.attempt}</span> : null}
          </Flex>
          {detail ? (
            <Flex>
              {detail.row.actions.map((action: Action) => (
                <Button
                  key={action}
                  variant={action === "clone" ? "primary" : "secondary"}
                  isDanger={action === "delete"}
                  isAriaDisabled={Boolean(refusal(action))}
                  {...(refusal(action) ? { title: refusal(action) } : {})}
                  onClick={() => begin(action, [`${namespace}/${name}`])}
                >
                  {WORDS[action]}
                </Button>
              ))}
              <Button variant="secondary" component="a" href={at(`/api/v1/trainjobs/${namespace}/${name}/export${which}`)} download={`${name}.yaml`}>
                Download configuration
              </Button>
              <Button variant="secondary" component="a" href={at(`/api/v1/trainjobs/${namespace}/${name}/bundle${which}`)} download={`${name}-bundle.tar.gz`}>
                Download support bundle
              </Button>
            </Flex>
          ) : null}
        </div>
        {detail ? <Attempts row={detail.row} /> : null}
        {created && detail ? (
          <Alert
            variant="success"
            isInline
            title={`${name} was created`}
            actionClose={<AlertActionCloseButton onClose={() => setCreated(false)} />}
          >
            The same on the command line:
            <ClipboardCopy isReadOnly hoverTip="Copy" clickTip="Copied" textAriaLabel="Command">
              {detail.commands["describe"] ?? ""}
            </ClipboardCopy>
          </Alert>
        ) : null}
      </PageSection>
      <PageSection isFilled>
        {job.error ? <ProblemAlert error={job.error} /> : null}
        {job.isPending ? <Spinner aria-label="Reading the job" /> : null}
        {detail ? (
          <Tabs
            activeKey={active}
            onSelect={(_, key) => navigate(key === "overview" ? `${base}${which}` : `${base}/${String(key)}${which}`)}
            aria-label="About this job"
            mountOnEnter
            unmountOnExit
          >
            {TABS.map((one) => (
              <Tab key={one} eventKey={one} title={<TabTitleText>{titleOf(one, detail)}</TabTitleText>}>
                <div className="tab">
                  <Content tab={one} detail={detail} />
                </div>
              </Tab>
            ))}
          </Tabs>
        ) : null}
        {question}
      </PageSection>
    </>
  );
}

/** The jobs that had this name: each has its own page. */
function Attempts({ row }: { row: JobRow }) {
  const found = useAttempts(row).data?.items ?? [];
  if (found.length < 2) return null;
  return (
    <nav aria-label="Attempts" className="filters">
      {found.slice(0, 10).map((one, at) => (
        <Link key={one.uid} to={`/jobs/${one.namespace}/${one.name}${at ? `?uid=${one.uid}` : ""}`} aria-current={one.uid === row.uid ? "page" : undefined}>
          #{found.length - at} {one.phase}
          {one.uid === row.uid ? " (this)" : ""}
        </Link>
      ))}
    </nav>
  );
}

function titleOf(tab: TabName, detail: JobDetail): string {
  if (tab === "yaml") return "YAML";
  const word = tab.charAt(0).toUpperCase() + tab.slice(1);
  return tab === "workers" ? `${word} (${detail.row.workers_ready}/${detail.row.workers})` : word;
}

function Content({ tab, detail }: { tab: TabName; detail: JobDetail }) {
  switch (tab) {
    case "overview":
      return <Overview detail={detail} />;
    case "configuration":
      return <Configuration detail={detail} />;
    case "workers":
      return <Workers detail={detail} />;
    case "logs":
      return <Logs detail={detail} />;
    case "metrics":
      return (
        <Suspense fallback={<Spinner aria-label="Loading the charts" />}>
          <Metrics detail={detail} />
        </Suspense>
      );
    case "events":
      return <Events detail={detail} />;
    case "artifacts":
      return <Artifacts detail={detail} />;
    case "yaml":
      return <Yaml detail={detail} />;
  }
}
