import { PageSection, Title } from "@patternfly/react-core";
import { useQuery } from "@tanstack/react-query";
import { useEffect } from "react";
import { useLocation, useNavigate } from "react-router-dom";
import { api, take } from "../api/client";
import { Part } from "../components/Part";
import { Terms } from "../components/Terms";
import { useTitle } from "../hooks";
import { Guide, useGuide } from "../wizard/Guide";
import { Quickstart } from "./Quickstart";

/** A first job that ticks itself, which kind of job suits, what the words mean, what every field is for. */
export function Learn() {
  useTitle("Learn");
  const navigate = useNavigate();
  const { hash } = useLocation();
  const told = useGuide().data;
  const fields = useQuery({ queryKey: ["fields"], queryFn: () => take(api.GET("/api/v1/fields")), staleTime: Infinity });
  useEffect(() => {
    if (hash && fields.data) document.getElementById(decodeURIComponent(hash.slice(1)))?.scrollIntoView();
  }, [hash, fields.data]);
  return (
    <>
      <PageSection>
        <Title headingLevel="h1">Learn</Title>
      </PageSection>
      <PageSection isFilled>
        <div className="stack">
          <Quickstart />
          <Part title="Which kind of job?">
            <Guide heading="h3" onChosen={() => void navigate("/create?step=basics")} />
          </Part>
          {told ? (
            <Part title="Words">
              <Terms isHorizontal entries={Object.entries(told.glossary)} />
            </Part>
          ) : null}
          {fields.data ? (
            <Part title="All fields of a job">
              <Terms
                isHorizontal
                entries={Object.entries(fields.data.items).map(
                  ([path, help]) =>
                    [
                      path,
                      <span key={path} id={`about-${path}`}>
                        {help.text} {help.words.length ? `One of: ${help.words.join(", ")}. ` : ""}
                        {help.example ? <code>{`${path.split(".").pop() ?? ""}: ${help.example}`}</code> : null}
                      </span>,
                    ] as const,
                )}
              />
            </Part>
          ) : null}
        </div>
      </PageSection>
    </>
  );
}
