import {
  Button,
  Card,
  CardBody,
  CardTitle,
  PageSection,
  Title,
} from "@patternfly/react-core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "react-router-dom";
import { api, take } from "../api/client";
import { ProblemAlert } from "../components/ProblemAlert";
import { Terms } from "../components/Terms";
import { useTitle } from "../hooks";

/** Which kind of job suits, and what the words mean; both come from the server. */
export function Learn() {
  useTitle("Learn");
  const guide = useQuery({ queryKey: ["guide"], queryFn: () => take(api.GET("/api/v1/guide")), staleTime: Infinity });
  const [at, setAt] = useState<string | null>(null);
  const told = guide.data;
  const place = at ?? told?.begin ?? "";
  const question = told?.questions[place];
  const kind = told?.kinds[place];
  return (
    <>
      <PageSection>
        <Title headingLevel="h1">Learn</Title>
      </PageSection>
      <PageSection isFilled>
        {guide.error ? <ProblemAlert error={guide.error} /> : null}
        {told ? (
          <div className="stack">
            <Card component="section" aria-label="Which kind of job">
              <CardTitle component="h2">Which kind of job?</CardTitle>
              <CardBody aria-live="polite">
                {question ? (
                  <>
                    <p>{question.text}</p>
                    <div className="answers">
                      {question.options.map((option) => (
                        <Button key={option.text} variant="secondary" onClick={() => setAt(option.then)}>
                          {option.text}
                        </Button>
                      ))}
                    </div>
                  </>
                ) : null}
                {kind ? (
                  <>
                    <h3>{kind.name}</h3>
                    <p>Because {kind.why}.</p>
                    <pre className="exactly">{kind.snippet}</pre>
                    {kind.here ? <Link to="/create">Create this job</Link> : <a href={kind.link}>Read on: {kind.link}</a>}
                  </>
                ) : null}
                {at ? (
                  <p>
                    <Button variant="link" isInline onClick={() => setAt(null)}>
                      Begin again
                    </Button>
                  </p>
                ) : null}
              </CardBody>
            </Card>
            <Card component="section" aria-label="Words">
              <CardTitle component="h2">Words</CardTitle>
              <CardBody>
                <Terms isHorizontal entries={Object.entries(told.glossary)} />
              </CardBody>
            </Card>
          </div>
        ) : null}
      </PageSection>
    </>
  );
}
