import { Table, Tbody, Td, Th, Thead, Tr } from "@patternfly/react-table";
import { Link } from "react-router-dom";
import type { JobDetail } from "../api/client";
import { bytes, duration, linesBetween } from "../words";

/** The steps of a script; each opens the lines of its time. */
export function Steps({ detail, now }: { detail: JobDetail; now: number }) {
  const { state, row } = detail;
  return (
    <Table aria-label="Steps" variant="compact">
      <Thead>
        <Tr>
          {["Step", "Command", "Ranks", "Time", "Memory", "Exit code"].map((word) => (
            <Th key={word}>{word}</Th>
          ))}
        </Tr>
      </Thead>
      <Tbody>
        {(state.steps ?? []).map((step) => {
          const begin = step.started ?? 0;
          const end = step.finished ?? null;
          const failed = step.failed_rank === null || step.failed_rank === undefined ? "" : ` (rank ${step.failed_rank})`;
          return (
            <Tr key={step.number}>
              <Td dataLabel="Step">
                <Link to={linesBetween(row, begin, end === null ? null : end + 1)}>{step.number}</Link>
              </Td>
              <Td dataLabel="Command">{step.command}</Td>
              <Td dataLabel="Ranks">{step.ranks || "–"}</Td>
              <Td dataLabel="Time">{duration((end ?? now) - begin)}</Td>
              <Td dataLabel="Memory">{step.peak_bytes ? bytes(step.peak_bytes) : "–"}</Td>
              <Td dataLabel="Exit code">{step.exit_code === null || step.exit_code === undefined ? "running" : `${step.exit_code}${failed}`}</Td>
            </Tr>
          );
        })}
      </Tbody>
    </Table>
  );
}
