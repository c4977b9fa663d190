import { PageSection, SearchInput, Skeleton, Title } from "@patternfly/react-core";
import { useEffect, useState, type ReactNode } from "react";
import { useLocation, useNavigate, useParams } from "react-router-dom";
import { useFieldHelp, useGuide } from "../api/queries";
import { Details } from "../components/Details";
import { PageTabs } from "../components/PageTabs";
import { capitalized } from "../lib/format";
import { usePageTitle } from "../lib/hooks";
import { Guide } from "../wizard/Guide";
import { templatePath } from "../wizard/templates";
import { Quickstart } from "./Quickstart";
import styles from "./pages.module.css";

const TABS = [
  { key: "start", label: "Getting started" },
  { key: "job-types", label: "Choose a job type" },
  { key: "glossary", label: "Glossary" },
  { key: "fields", label: "Job field reference" },
] as const;

/** First steps, choice of job type, glossary, and descriptions of all fields. */
export function Learn() {
  usePageTitle("Learn");
  const { tab = "start" } = useParams();
  const navigate = useNavigate();
  const active = TABS.find(({ key }) => key === tab)?.key ?? "start";
  const contents: Record<(typeof TABS)[number]["key"], () => ReactNode> = {
    start: () => <Quickstart />,
    "job-types": () => <Guide heading="h2" onChosen={(_, kind) => void navigate(kind.template ? templatePath(kind.template) : "/create?step=workload")} />,
    glossary: () => <Glossary />,
    fields: () => <Fields />,
  };
  return (
    <>
      <PageSection hasBodyWrapper={false}>
        <Title headingLevel="h1">Learn</Title>
      </PageSection>
      <PageTabs label="Learn" tabs={TABS} active={active} onSelect={(key) => void navigate(key === "start" ? "/learn" : `/learn/${key}`)}>
        {contents[active]()}
      </PageTabs>
    </>
  );
}

function Search({ label, text, onChange }: { label: string; text: string; onChange: (text: string) => void }) {
  return (
    <div className={`${styles["toolbar"]} ${styles["search"]}`}>
      <SearchInput aria-label={label} placeholder={label} value={text} onChange={(_, value) => onChange(value)} onClear={() => onChange("")} />
    </div>
  );
}

const matches = (text: string, ...parts: readonly string[]): boolean => parts.some((part) => part.toLowerCase().includes(text.toLowerCase()));

function Glossary() {
  const guide = useGuide().data;
  const [text, setText] = useState("");
  if (!guide) return <Skeleton height="12rem" screenreaderText="Loading the glossary" />;
  return (
    <>
      <Search label="Search the glossary" text={text} onChange={setText} />
      <Details
        isHorizontal
        entries={Object.entries(guide.glossary)
          .filter(([term, meaning]) => matches(text, term, meaning))
          .map(([term, meaning]) => [capitalized(term), meaning])}
      />
    </>
  );
}

function Fields() {
  const fields = useFieldHelp().data;
  const { hash } = useLocation();
  const [text, setText] = useState("");
  useEffect(() => {
    if (hash && fields) document.getElementById(decodeURIComponent(hash.slice(1)))?.scrollIntoView();
  }, [hash, fields]);
  if (!fields) return <Skeleton height="12rem" screenreaderText="Loading the fields" />;
  return (
    <>
      <Search label="Search fields" text={text} onChange={setText} />
      <Details
        isHorizontal
        entries={Object.entries(fields.items)
          .filter(([path, help]) => matches(text, path, help.text))
          .map(([path, help]) => [
            path,
            <span key={path} id={`about-${path}`}>
              {help.text} {help.words.length ? `Allowed values: ${help.words.join(", ")}. ` : ""}
              {help.example ? <code>{`${path.split(".").pop() ?? ""}: ${help.example}`}</code> : null}
            </span>,
          ])}
      />
    </>
  );
}
