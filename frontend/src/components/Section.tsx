import { Card, CardBody, CardHeader, CardTitle, type CardProps } from "@patternfly/react-core";
import type { ReactNode } from "react";

interface Props extends Omit<CardProps, "title"> {
  title: string;
  /** Buttons and links at the right of the title. */
  actions?: ReactNode;
  heading?: "h2" | "h3";
  children: ReactNode;
}

/** One part of a page, with its title. */
export function Section({ title, actions, heading = "h2", children, ...props }: Props) {
  return (
    <Card component="section" aria-label={title} {...props}>
      <CardHeader {...(actions ? { actions: { actions, hasNoOffset: true } } : {})}>
        <CardTitle component={heading}>{title}</CardTitle>
      </CardHeader>
      <CardBody>{children}</CardBody>
    </Card>
  );
}
