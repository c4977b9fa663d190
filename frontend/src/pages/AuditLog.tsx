import { Button, EmptyState, Label, ToggleGroup, ToggleGroupItem } from "@patternfly/react-core";
import { useInfiniteQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "react-router-dom";
import { api, unwrap } from "../api/client";
import { Answer } from "../components/Answer";
import { DataTable } from "../components/DataTable";
import { Time } from "../components/Time";
import { jobPath } from "../lib/links";
import { actionWords, resultOf, timeOf } from "./audit";
import styles from "./pages.module.css";

const PAGE_SIZE = 50;

/** Who did what to which job, with what result, newest first. */
export function AuditLog() {
  const [denied, setDenied] = useState(false);
  const audit = useInfiniteQuery({
    queryKey: ["audit", denied],
    queryFn: ({ pageParam }) =>
      unwrap(api.GET("/api/v1/audit", { params: { query: { limit: PAGE_SIZE, refused: denied, ...(pageParam ? { until: pageParam } : {}) } } })),
    initialPageParam: 0,
    getNextPageParam: (page) => {
      const oldest = page.items[0]?.stageTimestamp;
      return page.items.length < PAGE_SIZE || !oldest ? undefined : timeOf(oldest) - 0.001;
    },
    retry: false,
  });
  return (
    <div>
      <div className={styles["toolbar"]}>
        <ToggleGroup aria-label="Show">
          <ToggleGroupItem text="All actions" buttonId="audit-all" isSelected={!denied} onChange={() => setDenied(false)} />
          <ToggleGroupItem text="Denied only" buttonId="audit-denied" isSelected={denied} onChange={() => setDenied(true)} />
        </ToggleGroup>
        <Button variant="link" onClick={() => void audit.refetch()}>
          Refresh
        </Button>
      </div>
      <Answer query={audit}>
        {({ pages }) => {
          const entries = pages.flatMap((page) => [...page.items].reverse());
          if (!entries.length) return <EmptyState titleText="No entries" headingLevel="h2" variant="sm" />;
          return (
            <>
              {pages[0]?.own ? <p>Showing your actions only.</p> : null}
              <DataTable
                label="Audit log"
                columns={["Time", "User", "Action", "Job", "Result"]}
                rows={entries.map((entry) => {
                  const { namespace = "", name = "" } = entry.objectRef ?? {};
                  const result = resultOf(entry.responseStatus?.code);
                  return [
                    <Time key="time" at={timeOf(entry.stageTimestamp ?? "")} />,
                    entry.user.username,
                    actionWords(entry.verb),
                    name ? (
                      <Link key="job" to={jobPath({ namespace, name })}>
                        {namespace}/{name}
                      </Link>
                    ) : (
                      "–"
                    ),
                    <Label key="result" className={styles["mark"] ?? ""} color={result.isGood ? "green" : "red"} isCompact title={entry.responseStatus?.message ?? ""}>
                      {result.text}
                    </Label>,
                  ];
                })}
                sortBy={entries.map((entry) => [
                  entry.stageTimestamp ?? "",
                  entry.user.username,
                  entry.verb,
                  [entry.objectRef?.namespace, entry.objectRef?.name].filter(Boolean).join("/"),
                  resultOf(entry.responseStatus?.code).text,
                ])}
                file="audit"
                numeric={["Time"]}
              />
              {audit.hasNextPage ? (
                <Button variant="link" isLoading={audit.isFetchingNextPage} onClick={() => void audit.fetchNextPage()}>
                  Load older entries
                </Button>
              ) : null}
            </>
          );
        }}
      </Answer>
    </div>
  );
}
