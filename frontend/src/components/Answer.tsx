import { Alert, Skeleton } from "@patternfly/react-core";
import type { ReactNode } from "react";
import { problemOf } from "../api/client";

interface Props<T> {
  query: { data: T | undefined; error: unknown };
  children: (data: T) => ReactNode;
}

/** The answer to a question; what the user may not see says why, and is no fault of the page. */
export function Answer<T>({ query, children }: Props<T>) {
  if (query.error) {
    const { message, hint } = problemOf(query.error);
    return (
      <Alert isInline isPlain variant="info" component="p" title={message}>
        {hint}
      </Alert>
    );
  }
  return query.data === undefined ? <Skeleton height="4rem" screenreaderText="Loading" /> : <>{children(query.data)}</>;
}
