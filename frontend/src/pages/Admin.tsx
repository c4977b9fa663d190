import { PageSection, Title } from "@patternfly/react-core";
import { useCapabilities } from "../api/queries";
import { PageTabs } from "../components/PageTabs";
import { usePageTitle, useQueryParams } from "../lib/hooks";
import { AdminOverview } from "./AdminOverview";
import { AuditLog } from "./AuditLog";
import { FailurePatterns } from "./FailurePatterns";
import { HelpFeedback } from "./HelpFeedback";
import { Migration } from "./Migration";

/** For administrators: projects, capacity, common failures, audit log and migration status. */
export function Admin() {
  usePageTitle("Administration");
  const cluster = useCapabilities().data?.cluster ?? false;
  const [params, edit] = useQueryParams();
  const tabs = [
    { key: "overview", label: "Overview", content: <AdminOverview /> },
    { key: "failures", label: "Failures", content: <FailurePatterns /> },
    { key: "audit", label: "Audit log", content: <AuditLog /> },
    ...(cluster ? [{ key: "migration", label: "Migration", content: <Migration /> }] : []),
    { key: "feedback", label: "Help feedback", content: <HelpFeedback /> },
  ];
  const active = tabs.find(({ key }) => key === params.get("tab")) ?? tabs[0];
  return (
    <>
      <PageSection hasBodyWrapper={false}>
        <Title headingLevel="h1">Administration</Title>
      </PageSection>
      <PageTabs label="Administration" tabs={tabs} active={active?.key ?? ""} onSelect={(key) => edit((query) => query.set("tab", key))}>
        {active?.content}
      </PageTabs>
    </>
  );
}
