/** The parts of the wizard around its fields: steps, what is wrong, the advanced groups. */
import { Alert, Button, ExpandableSection } from "@patternfly/react-core";
import CheckCircleIcon from "@patternfly/react-icons/dist/esm/icons/check-circle-icon";
import ExclamationCircleIcon from "@patternfly/react-icons/dist/esm/icons/exclamation-circle-icon";
import { useState, type ReactNode } from "react";
import { problemOf, type Finding } from "../api/client";
import { read, type Difference, type Values } from "./document";
import { fieldAt, STEP_WORDS, STEPS, type Field, type Step } from "./fields";

interface NavProps {
  step: Step;
  fields: readonly Field[];
  seen: ReadonlySet<Step>;
  findings: readonly Finding[];
  onGo: (step: Step) => void;
}

/** The steps in order; each can be gone to, and says whether something in it is wrong. */
export function StepsNav({ step, fields, seen, findings, onGo }: NavProps) {
  const wrong = new Set(findings.map((one) => fieldAt(one.field ?? "", fields)?.step));
  return (
    <nav aria-label="Steps">
      <ol className="steps-nav">
        {STEPS.map((one, at) => (
          <li key={one}>
            <button type="button" aria-current={one === step ? "step" : undefined} onClick={() => onGo(one)}>
              <span className="steps-mark" aria-hidden>
                {wrong.has(one) ? <ExclamationCircleIcon /> : seen.has(one) && one !== step ? <CheckCircleIcon /> : at + 1}
              </span>
              {STEP_WORDS[one]}
              {wrong.has(one) ? <span className="pf-v6-screen-reader"> (something is wrong here)</span> : null}
            </button>
          </li>
        ))}
      </ol>
    </nav>
  );
}

interface ErrorProps {
  error: unknown;
  created: boolean;
  fields: readonly Field[];
  onGo: (field: Field) => void;
}

/** All that is wrong, in the server's sentences; each leads to its field. */
export function ErrorSummary({ error, created, fields, onGo }: ErrorProps) {
  if (!error) return null;
  const problem = problemOf(error);
  const findings = problem.findings ?? [];
  return (
    <Alert
      isInline
      variant="danger"
      component="p"
      title={created ? "The job was not created" : "This job would be refused"}
      data-testid="problem"
      role={created ? "alert" : undefined}
    >
      {findings.length ? (
        <ul>
          {findings.map((one, at) => {
            const field = fieldAt(one.field ?? "", fields);
            return (
              <li key={at}>
                {field ? (
                  <Button variant="link" isInline onClick={() => onGo(field)}>
                    {field.label}
                  </Button>
                ) : (
                  one.field
                )}
                {field || one.field ? ": " : ""}
                {one.message}
                {one.line ? ` (line ${one.line})` : ""}
                {one.hint ? ` – ${one.hint}` : ""}
              </li>
            );
          })}
        </ul>
      ) : (
        <>
          <p>{problem.message}</p>
          {problem.hint ? <p>What to do: {problem.hint}</p> : null}
        </>
      )}
    </Alert>
  );
}

interface AdvancedProps {
  fields: readonly Field[];
  job: Values;
  findings: readonly Finding[];
  inputs: (which: (field: Field) => boolean) => ReactNode[];
}

/** What most jobs leave as it is, group by group; a group in which something is wrong is open. */
export function Advanced({ fields, job, findings, inputs }: AdvancedProps) {
  const own = fields.filter((field) => field.step === "advanced");
  const groups = [...new Set(own.map((field) => field.group ?? ""))];
  const set = (group: string): number => own.filter((field) => field.group === group && read(job, field.path) !== undefined).length;
  return (
    <>
      <p>Nothing here has to be filled in.</p>
      {groups.map((group) => (
        <Group key={group} title={group} set={set(group)} wrong={findings.some((one) => fieldAt(one.field ?? "", fields)?.group === group)}>
          {inputs((field) => field.step === "advanced" && field.group === group)}
        </Group>
      ))}
    </>
  );
}

function Group({ title, set, wrong, children }: { title: string; set: number; wrong: boolean; children: ReactNode }) {
  const [open, setOpen] = useState(false);
  return (
    <ExpandableSection toggleText={set ? `${title} (${set} set)` : title} isExpanded={open || wrong} onToggle={(_, on) => setOpen(on)} isIndented>
      {open || wrong ? <div className="fields">{children}</div> : null}
    </ExpandableSection>
  );
}

/** What a clone changes against the job that it was made from. */
export function Changes({ changes }: { changes: readonly Difference[] }) {
  if (!changes.length) return null;
  return (
    <Alert variant="info" isInline component="p" title="Changed against the original">
      <ul data-testid="changes">
        {changes.map((one) => (
          <li key={one.path}>
            {one.path}: {one.was} → {one.is}
          </li>
        ))}
      </ul>
    </Alert>
  );
}
