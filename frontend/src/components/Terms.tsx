import { DescriptionList, DescriptionListDescription, DescriptionListGroup, DescriptionListTerm } from "@patternfly/react-core";
import type { DescriptionListProps } from "@patternfly/react-core";
import type { ReactNode } from "react";

type Props = Omit<DescriptionListProps, "children"> & { entries: readonly (readonly [string, ReactNode])[] };

/** Terms and what is said of them, one beside or below the other. */
export function Terms({ entries, ...look }: Props) {
  return (
    <DescriptionList isCompact {...look}>
      {entries.map(([term, words]) => (
        <DescriptionListGroup key={term}>
          <DescriptionListTerm>{term}</DescriptionListTerm>
          <DescriptionListDescription>{words}</DescriptionListDescription>
        </DescriptionListGroup>
      ))}
    </DescriptionList>
  );
}
