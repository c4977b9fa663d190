import { PageSection, Title } from "@patternfly/react-core";
import { PageTabs } from "../components/PageTabs";
import { usePageTitle, useQueryParams } from "../lib/hooks";
import { ProjectSelectOnScreen } from "../shell/ProjectSelect";
import { QueueTab } from "./QueueTab";
import { UsageTab } from "./UsageTab";

const TABS = [
  { key: "queue", label: "Queue" },
  { key: "usage", label: "Usage and cost" },
] as const;

/** Capacity, waiting jobs in order with estimated starts, usage and cost. */
export function Queues() {
  usePageTitle("Queues and usage");
  const [params, edit] = useQueryParams();
  const tab = params.get("tab") === "usage" ? "usage" : "queue";
  return (
    <>
      <PageSection hasBodyWrapper={false}>
        <Title headingLevel="h1">Queues and usage</Title>
        <ProjectSelectOnScreen />
      </PageSection>
      <PageTabs label="Queues and usage" tabs={TABS} active={tab} onSelect={(key) => edit((query) => query.set("tab", key))}>
        {tab === "usage" ? <UsageTab /> : <QueueTab />}
      </PageTabs>
    </>
  );
}
