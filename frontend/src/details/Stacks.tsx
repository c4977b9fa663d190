import { Button, ExpandableSection } from "@patternfly/react-core";
import { useMutation } from "@tanstack/react-query";
import { addressOf, api, take, type JobDetail } from "../api/client";
import type { components } from "../api/schema";
import { Part } from "../components/Part";
import { ProblemAlert } from "../components/ProblemAlert";
import { plural } from "../words";

type Report = components["schemas"]["StackReport"];
type Group = components["schemas"]["StackGroup"];
type Frame = components["schemas"]["Frame"];

/** Where the ranks of a running job stand, when somebody wants to know why nothing happens. */
export function Stacks({ detail: { row } }: { detail: JobDetail }) {
  const look = useMutation({
    mutationFn: () => take(api.POST("/api/v1/trainjobs/{namespace}/{name}/stacks", { params: addressOf(row) })),
  });
  if (row.phase !== "Running") return null;
  return (
    <Part title="Where the ranks stand">
      <div className="stack">
        <p>Does it hang? Look into every rank at the same moment. The job is stopped for an instant, and goes on.</p>
        <Button variant="secondary" isLoading={look.isPending} isDisabled={look.isPending} onClick={() => look.mutate()}>
          {look.data ? "Look again" : "Look now"}
        </Button>
        {look.error ? <ProblemAlert error={look.error} /> : null}
        <div aria-live="polite">{look.data ? <Found report={look.data} /> : null}</div>
      </div>
    </Part>
  );
}

function Found({ report }: { report: Report }) {
  return (
    <>
      <p>{report.summary}</p>
      <ul aria-label="Where the ranks stand">
        {(report.groups ?? []).map((group) => (
          <li key={`${group.where}${group.ranks[0]}`}>
            {plural(group.ranks.length, "rank")} ({group.ranks.join(", ")}) in <code>{group.where}</code>
            {group.waits ? ", waiting for others" : ""}
            <Calls group={group} />
          </li>
        ))}
      </ul>
      {[...(report.remarks ?? []), ...(report.lacks ?? [])].map((sentence) => (
        <p key={sentence}>{sentence}</p>
      ))}
    </>
  );
}

const place = ({ file, line }: Frame): string => (file ? ` (${file}${line ? `:${line}` : ""})` : "");

function Calls({ group: { frames = [], ranks } }: { group: Group }) {
  if (!frames.length) return null;
  return (
    <ExpandableSection toggleText={`Calls of rank ${ranks[0] ?? 0}, the innermost first`}>
      <ol>
        {frames.map((frame, at) => (
          <li key={at}>
            <code>
              {frame.function}
              {place(frame)}
            </code>
          </li>
        ))}
      </ol>
    </ExpandableSection>
  );
}
