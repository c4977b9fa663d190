import { EmptyState, EmptyStateBody, Flex, Skeleton, ToggleGroup, ToggleGroupItem } from "@patternfly/react-core";
import ChartLineIcon from "@patternfly/react-icons/dist/esm/icons/chart-line-icon";
import { useQuery } from "@tanstack/react-query";
import { api, attemptParams, jobKey, unwrap } from "../api/client";
import { refetchedOn } from "../api/refetch";
import { ProblemAlert } from "../components/ProblemAlert";
import { useJobPage } from "../job/context";
import { useQueryParams } from "../lib/hooks";
import { EventFileCharts } from "./EventFileCharts";
import styles from "./metrics.module.css";
import { TrainingCharts } from "./TrainingCharts";
import { UsageCharts, type UsageView } from "./UsageCharts";

const VIEWS: readonly (readonly [UsageView, string])[] = [
  ["band", "Min to max"],
  ["workers", "Per worker"],
  ["heat", "Heat map"],
];
const FINE_POINTS = 720;
const COARSE_POINTS = 240; // of each worker

/** What a training reported, and what its workers used, with limits and the worker that used most. */
export default function MetricsTab() {
  const { row } = useJobPage();
  const [params, edit] = useQueryParams();
  const view = VIEWS.find(([key]) => key === params.get("usage"))?.[0] ?? "band";
  const each = view !== "band";
  const { path, query } = attemptParams(row);
  const usage = useQuery({
    ...refetchedOn(jobKey(row, "metrics"), `${each} ${row.phase}`),
    queryFn: () =>
      unwrap(
        api.GET("/api/v1/trainjobs/{namespace}/{name}/metrics", {
          params: { path, query: { ...query, points: each ? COARSE_POINTS : FINE_POINTS, each_worker: each } },
        }),
      ),
    refetchInterval: row.phase === "Running" ? 5000 : false,
  });
  return (
    <div className={styles["section"]}>
      <TrainingCharts row={row} />
      <EventFileCharts row={row} />
      <section aria-label="Usage" className={styles["section"]}>
        <Flex justifyContent={{ default: "justifyContentSpaceBetween" }} alignItems={{ default: "alignItemsCenter" }}>
          <h2 className={styles["heading"]}>Usage of the workers</h2>
          {usage.data?.samples ? (
            <ToggleGroup aria-label="How usage is shown">
              {VIEWS.map(([key, label]) => (
                <ToggleGroupItem key={key} buttonId={`usage-${key}`} text={label} isSelected={view === key} onChange={() => edit((words) => words.set("usage", key), { replace: true })} />
              ))}
            </ToggleGroup>
          ) : null}
        </Flex>
        {usage.error ? <ProblemAlert error={usage.error} /> : null}
        {usage.isPending ? <Skeleton height="12rem" screenreaderText="Loading usage" /> : null}
        {usage.data && !usage.data.samples ? (
          <EmptyState titleText="No resource metrics" headingLevel="h3" icon={ChartLineIcon} variant="sm">
            <EmptyStateBody>
              Usage is sampled every second while workers run; this job {row.phase === "Running" ? "just started." : "ran for less than one sample, or hasn't run."}
            </EmptyStateBody>
          </EmptyState>
        ) : null}
        {usage.data?.samples ? <UsageCharts usage={usage.data} row={row} view={view} /> : null}
      </section>
    </div>
  );
}
