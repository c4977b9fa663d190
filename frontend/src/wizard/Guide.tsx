import { Alert, Button, Card, CardBody, CardHeader, CardTitle, CodeBlock, CodeBlockCode } from "@patternfly/react-core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, take, type Kind } from "../api/client";
import { ProblemAlert } from "../components/ProblemAlert";

interface Props {
  /** Called with the key of a kind that can be created here. */
  onChosen: (key: string) => void;
  heading?: "h2" | "h3";
}

export const useGuide = () => useQuery({ queryKey: ["guide"], queryFn: () => take(api.GET("/api/v1/guide")), staleTime: Infinity });

/** Which kind of job suits: tiles to choose from, or a few questions; what is not ours ends in what to run elsewhere. */
export function Guide({ onChosen, heading = "h2" }: Props) {
  const guide = useGuide();
  const [at, setAt] = useState<string | null>(null);
  const told = guide.data;
  if (guide.error) return <ProblemAlert error={guide.error} />;
  if (!told) return null;
  const question = at === null ? undefined : told.questions[at];
  const kind = at === null ? undefined : told.kinds[at];
  const choose = (key: string): void => setAt(key);
  return (
    <div className="stack" aria-live="polite">
      <ul className="kinds" aria-label="Types of job">
        {Object.entries(told.kinds).map(([key, one]) => (
          <li key={key}>
            <Card isSelectable isSelected={at === key} id={`kind-${key}`}>
              <CardHeader
                selectableActions={{
                  selectableActionId: `choose-${key}`,
                  selectableActionAriaLabelledby: `kind-${key}-title`,
                  name: "kind",
                  variant: "single",
                  isChecked: at === key,
                  onChange: () => choose(key),
                }}
              >
                <CardTitle component={heading} id={`kind-${key}-title`}>
                  {capital(one.name)}
                </CardTitle>
              </CardHeader>
              <CardBody>{capital(one.why)}.</CardBody>
            </Card>
          </li>
        ))}
      </ul>
      {question ? (
        <fieldset className="question">
          <legend>{question.text}</legend>
          <div className="answers">
            {question.options.map((option) => (
              <Button key={option.text} variant="secondary" onClick={() => choose(option.then)}>
                {option.text}
              </Button>
            ))}
          </div>
        </fieldset>
      ) : null}
      {kind ? <Chosen kind={kind} onGo={() => onChosen(at ?? "")} /> : null}
      <div>
        <Button variant="link" isInline onClick={() => setAt(told.begin)}>
          {at === null ? "I am not sure: ask me" : "Ask me from the beginning"}
        </Button>
      </div>
    </div>
  );
}

const capital = (words: string): string => words.charAt(0).toUpperCase() + words.slice(1);

function Chosen({ kind, onGo }: { kind: Kind; onGo: () => void }) {
  return (
    <Alert isInline variant={kind.here ? "success" : "info"} title={capital(kind.name)} component="h3" data-testid="kind">
      <p>Because {kind.why}.</p>
      {kind.here ? (
        <Button onClick={onGo}>Create this job</Button>
      ) : (
        <>
          <p>This is not an MPI job. It is started so:</p>
          <CodeBlock>
            <CodeBlockCode>{kind.snippet}</CodeBlockCode>
          </CodeBlock>
          <p>
            <a href={kind.link} target="_blank" rel="noreferrer">
              Read on: {kind.link}
            </a>
          </p>
          <Button variant="secondary" onClick={onGo}>
            Create an MPI job all the same
          </Button>
        </>
      )}
    </Alert>
  );
}
