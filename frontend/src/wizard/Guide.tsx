import { Alert, Button, Card, CardBody, CardHeader, CardTitle, CodeBlock, CodeBlockCode, Gallery, List, ListItem } from "@patternfly/react-core";
import ExternalLinkAltIcon from "@patternfly/react-icons/dist/esm/icons/external-link-alt-icon";
import { useState } from "react";
import type { Kind } from "../api/client";
import { useGuide } from "../api/queries";
import { ProblemAlert } from "../components/ProblemAlert";
import { capitalized } from "../lib/format";
import styles from "./wizard.module.css";

interface Props {
  /** Called with the key of a type that can be created here. */
  onChosen: (key: string, kind: Kind) => void;
  heading?: "h2" | "h3" | "h4";
  /** Begins with the questions instead of the types. */
  startsAsking?: boolean;
}

/** Which type of job suits: types to choose from, or a few questions; a type that is not ours ends in how it is started. */
export function Guide({ onChosen, heading = "h3", startsAsking = false }: Props) {
  const guide = useGuide();
  const [at, setAt] = useState<string | null>(null);
  if (guide.error) return <ProblemAlert error={guide.error} />;
  if (!guide.data) return null;
  const { kinds, questions, begin } = guide.data;
  const key = at ?? (startsAsking ? begin : null);
  const question = key === null ? undefined : questions[key];
  const kind = key === null ? undefined : kinds[key];
  return (
    <div className={styles["column"]} aria-live="polite">
      {startsAsking && key === begin ? null : (
        <div>
          <Button variant="secondary" onClick={() => setAt(begin)}>
            {key === null ? "Help me choose" : "Start over"}
          </Button>
        </div>
      )}
      {question ? (
        <fieldset className={styles["question"]}>
          <legend>{question.text}</legend>
          <List isPlain>
            {question.options.map((option) => (
              <ListItem key={option.text}>
                <Button variant="secondary" onClick={() => setAt(option.then)}>
                  {option.text}
                </Button>
              </ListItem>
            ))}
          </List>
        </fieldset>
      ) : null}
      {kind ? <ChosenKind kind={kind} onContinue={() => onChosen(key ?? "", kind)} heading={heading} /> : null}
      {startsAsking ? null : <Kinds kinds={kinds} chosen={key ?? ""} onChoose={setAt} heading={heading} />}
    </div>
  );
}

interface KindsProps {
  kinds: Readonly<Record<string, Kind>>;
  chosen: string;
  onChoose: (key: string) => void;
  heading: "h2" | "h3" | "h4";
}

/** All types at a glance. */
function Kinds({ kinds, chosen, onChoose, heading }: KindsProps) {
  return (
    <Gallery hasGutter minWidths={{ default: "14rem" }} component="ul" aria-label="Job types">
      {Object.entries(kinds).map(([name, one]) => (
        <li key={name}>
          <Card isSelectable isSelected={chosen === name} isCompact isFullHeight id={`kind-${name}`}>
            <CardHeader
              selectableActions={{
                selectableActionId: `choose-${name}`,
                selectableActionAriaLabelledby: `kind-${name}-title`,
                name: "kind",
                variant: "single",
                isChecked: chosen === name,
                onChange: () => onChoose(name),
              }}
            >
              <CardTitle component={heading} id={`kind-${name}-title`}>
                {capitalized(one.name)}
              </CardTitle>
            </CardHeader>
            <CardBody>{capitalized(one.why)}</CardBody>
          </Card>
        </li>
      ))}
    </Gallery>
  );
}

function ChosenKind({ kind, onContinue, heading }: { kind: Kind; onContinue: () => void; heading: "h2" | "h3" | "h4" }) {
  return (
    <Alert isInline variant={kind.here ? "success" : "info"} title={capitalized(kind.name)} component={heading} data-testid="kind">
      <div className={styles["column"]}>
      <p>{capitalized(kind.why)}</p>
      {kind.here ? (
        <div>
          <Button onClick={onContinue}>Next</Button>
        </div>
      ) : (
        <>
          <p>This isn&apos;t an MPI job. Start it like this:</p>
          <CodeBlock>
            <CodeBlockCode>{kind.snippet}</CodeBlockCode>
          </CodeBlock>
          <p>
            <Button variant="link" isInline component="a" href={kind.link} target="_blank" rel="noreferrer" icon={<ExternalLinkAltIcon />} iconPosition="end">
              Learn more: {kind.link}
            </Button>
          </p>
          <div>
            <Button variant="secondary" onClick={onContinue}>
              Create an MPI job anyway
            </Button>
          </div>
        </>
      )}
      </div>
    </Alert>
  );
}
