import { Checkbox } from "@patternfly/react-core";
import { Table, Tbody, Td, Th, Thead, Tr } from "@patternfly/react-table";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "react-router-dom";
import { addressOf, api, take, type JobDetail, type JobEvent } from "../api/client";
import { ProblemAlert } from "../components/ProblemAlert";
import { clock } from "../words";

interface Folded extends JobEvent {
  readonly count: number;
  readonly last: number;
}

/** Events that say the same one after the other are one, with their number. */
function folded(items: readonly JobEvent[]): Folded[] {
  const made: Folded[] = [];
  for (const one of items) {
    const before = made.at(-1);
    if (before && before.reason === one.reason && before.message === one.message && before.worker === one.worker)
      made[made.length - 1] = { ...before, count: before.count + 1, last: one.time };
    else made.push({ ...one, count: 1, last: one.time });
  }
  return made;
}

export function Events({ detail }: { detail: JobDetail }) {
  const { row } = detail;
  const { namespace, name } = row;
  const [only, setOnly] = useState(false);
  const events = useQuery({
    queryKey: ["job", namespace, name, "events"],
    queryFn: () => take(api.GET("/api/v1/trainjobs/{namespace}/{name}/events", { params: addressOf(row) })),
    refetchInterval: 5000,
  });
  if (events.error) return <ProblemAlert error={events.error} />;
  const items = folded((events.data?.items ?? []).filter((one) => !only || (one.severity ?? "notice") !== "notice"));
  return (
    <div className="stack">
      <Checkbox id="only" label="Only warnings and errors" isChecked={only} onChange={(_, on) => setOnly(on)} />
      <Table aria-label="Events" variant="compact">
        <Thead>
          <Tr>
            {["Time", "Severity", "Event", "Who", "Message"].map((word) => (
              <Th key={word}>{word}</Th>
            ))}
          </Tr>
        </Thead>
        <Tbody>
          {items.map((one) => (
            <Tr key={`${one.sequence}${one.time}`}>
              <Td dataLabel="Time" modifier="nowrap">
                <Link to={`/jobs/${namespace}/${name}/logs?since=${Math.floor(one.time - 30)}&until=${Math.ceil(one.last + 30)}`} title="The lines around it">
                  {clock(one.time * 1000)}
                </Link>
                {one.count > 1 ? ` – ${clock(one.last * 1000)}` : ""}
              </Td>
              <Td dataLabel="Severity">{one.severity ?? "notice"}</Td>
              <Td dataLabel="Event">
                {one.reason}
                {one.count > 1 ? ` × ${one.count}` : ""}
              </Td>
              <Td dataLabel="Who">{one.worker === undefined || one.worker === null ? "job" : `worker ${one.worker}`}</Td>
              <Td dataLabel="Message" modifier="breakWord">
                {one.message}
              </Td>
            </Tr>
          ))}
        </Tbody>
      </Table>
      {events.data && !items.length ? <p>{only ? "No warnings and no errors." : "Nothing has happened yet."}</p> : null}
    </div>
  );
}
