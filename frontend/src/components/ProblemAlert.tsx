import { Alert, Content } from "@patternfly/react-core";
import type { ReactNode } from "react";
import { problemOf } from "../api/client";

/** What went wrong, in the server's words: what, why, next. */
export function ProblemAlert({ error, title, children }: { error: unknown; title?: string; children?: ReactNode }) {
  const problem = problemOf(error);
  return (
    <Alert variant="danger" isInline title={title ?? problem.message} data-testid="problem">
      {title ? <Content component="p">{problem.message}</Content> : null}
      {problem.hint ? <Content component="p">What to do: {problem.hint}</Content> : null}
      {children}
      <Content component="small">Code {problem.code}</Content>
    </Alert>
  );
}
