import {
  DescriptionList,
  DescriptionListDescription,
  DescriptionListGroup,
  DescriptionListTerm,
  type DescriptionListProps,
} from "@patternfly/react-core";
import type { ReactNode } from "react";

export type Entry = readonly [term: string, description: ReactNode];

type Props = Omit<DescriptionListProps, "children"> & { entries: readonly Entry[] };

/** Terms with their descriptions; entries without a description are left out. */
export function Details({ entries, ...props }: Props) {
  return (
    <DescriptionList isCompact {...props}>
      {entries
        .filter(([, description]) => description !== "" && description !== null && description !== undefined && description !== false)
        .map(([term, description]) => (
          <DescriptionListGroup key={term}>
            <DescriptionListTerm>{term}</DescriptionListTerm>
            <DescriptionListDescription>{description}</DescriptionListDescription>
          </DescriptionListGroup>
        ))}
    </DescriptionList>
  );
}
