import { Alert, Button, List, ListItem } from "@patternfly/react-core";
import { problemOf } from "../api/client";
import { plural } from "../lib/format";
import { fieldAt, type Field } from "./fields";

interface Props {
  error: unknown;
  /** Whether the job was to be created; else this is what the preview found. */
  isRefused: boolean;
  fields: readonly Field[];
  onGo: (field: Field) => void;
}

/** All that is wrong, in the server's sentences; each leads to its field. */
export function ErrorSummary({ error, isRefused, fields, onGo }: Props) {
  if (!error) return null;
  const { message, hint, findings = [] } = problemOf(error);
  const title = isRefused ? "The job was not created" : findings.length ? `Fix ${plural(findings.length, "problem")} before creating the job` : message;
  return (
    <Alert isInline variant="danger" component="h2" title={title} data-testid="problem" {...(isRefused ? { role: "alert" } : {})}>
      {findings.length ? (
        <List isPlain>
          {findings.map((finding, index) => {
            const field = fieldAt(finding.field ?? "", fields);
            return (
              <ListItem key={index}>
                {field ? (
                  <Button variant="link" isInline onClick={() => onGo(field)}>
                    {field.label}
                  </Button>
                ) : (
                  finding.field
                )}
                {field || finding.field ? ": " : ""}
                {finding.message}
                {finding.line ? ` (line ${finding.line})` : ""}
                {finding.hint ? ` – ${finding.hint}` : ""}
              </ListItem>
            );
          })}
        </List>
      ) : (
        <>
          {isRefused ? <p>{message}</p> : null}
          {hint ? <p>Try this: {hint}</p> : null}
        </>
      )}
    </Alert>
  );
}
