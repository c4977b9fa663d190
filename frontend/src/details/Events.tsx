import { Checkbox } from "@patternfly/react-core";
import { Table, Tbody, Td, Th, Thead, Tr } from "@patternfly/react-table";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, take, type JobDetail } from "../api/client";
import { ProblemAlert } from "../components/ProblemAlert";
import { clock } from "../words";

export function Events({ detail }: { detail: JobDetail }) {
  const { namespace, name } = detail.row;
  const [only, setOnly] = useState(false);
  const events = useQuery({
    queryKey: ["job", namespace, name, "events"],
    queryFn: () => take(api.GET("/api/v1/trainjobs/{namespace}/{name}/events", { params: { path: { namespace, name } } })),
    refetchInterval: 5000,
  });
  if (events.error) return <ProblemAlert error={events.error} />;
  const items = (events.data?.items ?? []).filter((one) => !only || (one.severity ?? "notice") !== "notice");
  return (
    <>
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
              <Td dataLabel="Time">{clock(one.time * 1000)}</Td>
              <Td dataLabel="Severity">{one.severity ?? "notice"}</Td>
              <Td dataLabel="Event">{one.reason}</Td>
              <Td dataLabel="Who">{one.worker === undefined || one.worker === null ? "job" : `worker ${one.worker}`}</Td>
              <Td dataLabel="Message" modifier="breakWord">
                {one.message}
              </Td>
            </Tr>
          ))}
        </Tbody>
      </Table>
    </>
  );
}
