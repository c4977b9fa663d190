import { Table, Tbody, Td, Th, Thead, Tr } from "@patternfly/react-table";
import { Link } from "react-router-dom";
import { bytes, duration } from "../lib/format";
import { useJobPage } from "./context";

const COLUMNS = ["Step", "Command", "Ranks", "Duration", "Peak memory", "Exit code"] as const;

/** The steps of a script; each opens the log lines of its time. */
export function StepsTable({ now }: { now: number }) {
  const { detail, path } = useJobPage();
  return (
    <Table aria-label="Steps" variant="compact" gridBreakPoint="grid-md">
      <Thead>
        <Tr>
          {COLUMNS.map((column) => (
            <Th key={column} modifier="nowrap">
              {column}
            </Th>
          ))}
        </Tr>
      </Thead>
      <Tbody>
        {(detail.state.steps ?? []).map((step) => {
          const begin = step.started ?? 0;
          const end = step.finished ?? null;
          const failedRank = step.failed_rank === null || step.failed_rank === undefined ? "" : ` (rank ${step.failed_rank})`;
          return (
            <Tr key={step.number}>
              <Td dataLabel="Step">
                <Link to={path("logs", { since: Math.floor(begin), until: end === null ? undefined : Math.ceil(end + 1) })}>{step.number}</Link>
              </Td>
              <Td dataLabel="Command" modifier="breakWord">
                {step.command}
              </Td>
              <Td dataLabel="Ranks">{step.ranks || "–"}</Td>
              <Td dataLabel="Duration">{duration((end ?? now) - begin)}</Td>
              <Td dataLabel="Peak memory">{step.peak_bytes ? bytes(step.peak_bytes) : "–"}</Td>
              <Td dataLabel="Exit code">{step.exit_code === null || step.exit_code === undefined ? "running" : `${step.exit_code}${failedRank}`}</Td>
            </Tr>
          );
        })}
      </Tbody>
    </Table>
  );
}
