import { Alert, Content } from "@patternfly/react-core";
import type { ReactNode } from "react";
import { problemOf } from "../api/client";

interface Props {
  error: unknown;
  title?: string;
  children?: ReactNode;
}

/** An error in the server's words: what happened, why, and what to do. */
export function ProblemAlert({ error, title, children }: Props) {
  const { message, hint, code } = problemOf(error);
  return (
    <Alert variant="danger" isInline component="h2" title={title ?? message} data-testid="problem">
      {title ? <Content component="p">{message}</Content> : null}
      {hint ? <Content component="p">Try this: {hint}</Content> : null}
      {children}
      <Content component="small">Error code: {code}</Content>
    </Alert>
  );
}
