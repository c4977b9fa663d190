import { Label, Skeleton, Switch } from "@patternfly/react-core";
import { Table, Tbody, Td, Th, Thead, Tr } from "@patternfly/react-table";
import { Link } from "react-router-dom";
import { useEvents } from "../api/queries";
import { ProblemAlert } from "../components/ProblemAlert";
import { Time } from "../components/Time";
import { capitalized } from "../lib/format";
import { useQueryParams } from "../lib/hooks";
import { useJobPage } from "./context";
import { foldedEvents } from "./events";
import styles from "./job.module.css";

const COLUMNS = ["Time", "Type", "Reason", "Object", "Message"] as const;
const TYPES = { notice: { label: "Normal", color: "grey" }, warning: { label: "Warning", color: "orange" }, error: { label: "Error", color: "red" } } as const;
const AROUND_SECONDS = 30;

/** What happened to the job, newest first; repeated events are one with their number. */
export default function Events() {
  const { row, path } = useJobPage();
  const [params, edit] = useQueryParams();
  const onlyWarnings = params.get("warnings") === "true";
  const events = useEvents(row);
  if (events.error) return <ProblemAlert error={events.error} />;
  if (!events.data) return <Skeleton height="12rem" screenreaderText="Loading events" />;
  const items = [...foldedEvents(events.data.items.filter((event) => !onlyWarnings || (event.severity ?? "notice") !== "notice"))].reverse();
  return (
    <>
      <div className={styles["toolbar"]}>
        <Switch
          id="only-warnings"
          label="Only warnings and errors"
          isChecked={onlyWarnings}
          onChange={(_, on) =>
            edit((query) => {
              if (on) query.set("warnings", "true");
              else query.delete("warnings");
            })
          }
        />
      </div>
      {items.length ? (
        <Table aria-label="Events" variant="compact" gridBreakPoint="grid-md">
          <Thead>
            <Tr>
              {COLUMNS.map((column) => (
                <Th key={column}>{column}</Th>
              ))}
            </Tr>
          </Thead>
          <Tbody>
            {items.map((event) => {
              const { label, color } = TYPES[event.severity ?? "notice"];
              return (
                <Tr key={`${event.sequence}${event.time}`}>
                  <Td dataLabel="Time" modifier="nowrap">
                    <Link
                      to={path("logs", { since: Math.floor(event.time - AROUND_SECONDS), until: Math.ceil(event.last + AROUND_SECONDS) })}
                    >
                      <Time at={event.time} format="clock" isInLink />
                      <span className="pf-v6-screen-reader">, show logs around this time</span>
                    </Link>
                    {event.count > 1 ? (
                      <>
                        {" – "}
                        <Time at={event.last} format="clock" />
                      </>
                    ) : null}
                  </Td>
                  <Td dataLabel="Type">
                    <Label color={color} isCompact className={styles["mark"] ?? ""}>
                      {label}
                    </Label>
                  </Td>
                  <Td dataLabel="Reason" modifier="nowrap">
                    {event.reason}
                    {event.count > 1 ? ` × ${event.count}` : ""}
                  </Td>
                  <Td dataLabel="Object" modifier="nowrap">
                    {event.worker === undefined || event.worker === null ? "Job" : <Link to={path("workers", { worker: event.worker })}>Worker {event.worker}</Link>}
                  </Td>
                  <Td dataLabel="Message" modifier="breakWord">
                    {capitalized(event.message)}
                  </Td>
                </Tr>
              );
            })}
          </Tbody>
        </Table>
      ) : (
        <p>{onlyWarnings ? "No warnings or errors" : "No events yet"}</p>
      )}
    </>
  );
}
