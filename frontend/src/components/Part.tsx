import { Card, CardBody, CardTitle } from "@patternfly/react-core";
import type { ReactNode } from "react";

/** One part of a page, with its title. */
export function Part({ title, children }: { title: string; children: ReactNode }) {
  return (
    <Card component="section" aria-label={title}>
      <CardTitle component="h2">{title}</CardTitle>
      <CardBody className="stack">{children}</CardBody>
    </Card>
  );
}
