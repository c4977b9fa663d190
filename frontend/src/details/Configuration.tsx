import { DescriptionList, DescriptionListDescription, DescriptionListGroup, DescriptionListTerm } from "@patternfly/react-core";
import type { JobDetail } from "../api/client";

function parts(value: unknown, path = ""): [string, string][] {
  if (typeof value === "object" && value !== null && !Array.isArray(value))
    return Object.entries(value).flatMap(([key, one]) => parts(one, path ? `${path}.${key}` : key));
  const words = Array.isArray(value) && value.every((one) => typeof one === "string") ? value.join(" ") : JSON.stringify(value);
  return [[path, typeof value === "string" ? value : (words ?? "")]];
}

/** What was asked for, part by part; what has its default is left out. */
export function Configuration({ detail }: { detail: JobDetail }) {
  return (
    <DescriptionList isHorizontal isCompact aria-label="Configuration">
      {parts(detail.spec).map(([path, value]) => (
        <DescriptionListGroup key={path}>
          <DescriptionListTerm>{path}</DescriptionListTerm>
          <DescriptionListDescription>{value || "–"}</DescriptionListDescription>
        </DescriptionListGroup>
      ))}
    </DescriptionList>
  );
}
