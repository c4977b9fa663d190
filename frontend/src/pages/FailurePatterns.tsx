import { EmptyState, EmptyStateBody } from "@patternfly/react-core";
import CheckCircleIcon from "@patternfly/react-icons/dist/esm/icons/check-circle-icon";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "react-router-dom";
import { api, unwrap } from "../api/client";
import { Answer } from "../components/Answer";
import { DataTable } from "../components/DataTable";
import { SelectMenu } from "../components/SelectMenu";
import { Time } from "../components/Time";
import { capitalized, plural } from "../lib/format";
import { jobPath } from "../lib/links";
import styles from "./pages.module.css";

const TIMES = [
  { value: "1", label: "Last day" },
  { value: "7", label: "Last 7 days" },
  { value: "30", label: "Last 30 days" },
] as const;
const MOST_JOBS = 3;

/** What jobs that failed have in common: a cause, or a machine. */
export function FailurePatterns() {
  const [days, setDays] = useState("7");
  const patterns = useQuery({
    queryKey: ["patterns", days],
    queryFn: () => unwrap(api.GET("/api/v1/patterns", { params: { query: { days: Number(days), least: 1 } } })),
    retry: false,
  });
  return (
    <>
      <div className={styles["toolbar"]}>
        <SelectMenu label="Time" value={days} options={TIMES} onChange={setDays} />
      </div>
      <Answer query={patterns}>
        {({ patterns: found = [], failed, ended }) =>
          found.length ? (
            <>
              <p>
                {failed} of {plural(ended, "job")} failed.
              </p>
              <DataTable
                label="Failure patterns"
                numeric={["Latest"]}
                columns={["Cause", "Example", "Jobs", "Latest", "Project", "Owners", "Recommended action"]}
                rows={found.map((pattern) => [
                  pattern.code || `Node ${pattern.node}`,
                  pattern.example || "–",
                  <span key="jobs">
                    {pattern.count}:{" "}
                    {pattern.jobs.slice(0, MOST_JOBS).map((job) => {
                      const [namespace = "", name = ""] = job.split("/");
                      return (
                        <span key={job}>
                          <Link to={jobPath({ namespace, name })}>{name}</Link>{" "}
                        </span>
                      );
                    })}
                  </span>,
                  <Time key="last" at={pattern.last} />,
                  pattern.namespace || "–",
                  (pattern.owners ?? []).join(", "),
                  pattern.hint ? capitalized(pattern.hint) : "–",
                ])}
              />
            </>
          ) : (
            <EmptyState titleText="No failed jobs" headingLevel="h2" icon={CheckCircleIcon} variant="sm">
              <EmptyStateBody>No jobs failed in this period.</EmptyStateBody>
            </EmptyState>
          )
        }
      </Answer>
    </>
  );
}
