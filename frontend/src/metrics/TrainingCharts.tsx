import { Button, Card, CardBody, CardHeader, CardTitle, ExpandableSection, Flex, Gallery, Progress } from "@patternfly/react-core";
import ExternalLinkAltIcon from "@patternfly/react-icons/dist/esm/icons/external-link-alt-icon";
import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { api, jobParams, unwrap, type JobRow, type Series } from "../api/client";
import { useCurves } from "../api/queries";
import { DataTable } from "../components/DataTable";
import { capitalized, plural, significant } from "../lib/format";
import { isFinal, isNotResponding } from "../lib/phases";
import { position, progressPercent, timeLeft } from "../lib/progress";
import { Chart } from "./Chart";
import { axisOf, byImportance, isConstant, isCurve } from "./curves";
import styles from "./metrics.module.css";

const TOOLS: Record<string, string> = { mlflow: "MLflow", wandb: "Weights & Biases", tensorboard: "TensorBoard" };
const MOST_CHARTS = 24;

/** A training's own metrics: how far it is, a chart of each, the numbers as a table, and where else they are seen. */
export function TrainingCharts({ row }: { row: JobRow }) {
  const curves = useCurves(row).data;
  const [open, setOpen] = useState(false);
  const series = useMemo(() => byImportance(curves?.series ?? []), [curves?.series]);
  const links = useQuery({
    queryKey: ["job", row.namespace, row.name, "links", row.uid],
    queryFn: () => unwrap(api.GET("/api/v1/trainjobs/{namespace}/{name}/links", { params: jobParams(row) })),
    enabled: series.length > 0,
    refetchInterval: isFinal(row.phase) ? false : 15_000,
    retry: false,
  });
  const percent = curves ? progressPercent(curves) : null;
  if (!curves || (!series.length && percent === null)) return null;
  const tools = Object.entries(links.data?.items ?? {});
  const left = timeLeft(curves, row.phase === "Running" && !isNotResponding(row));
  return (
    <section aria-label="Training" className={styles["section"]}>
      <Flex justifyContent={{ default: "justifyContentSpaceBetween" }}>
        <h2 className={styles["heading"]}>Training</h2>
        <Flex>
          {tools.map(([tool, address]) => (
            <Button key={tool} variant="link" isInline component="a" href={address} target="_blank" rel="noreferrer" icon={<ExternalLinkAltIcon />} iconPosition="end">
              {TOOLS[tool] ?? tool}
            </Button>
          ))}
        </Flex>
      </Flex>
      {percent === null || (percent === 100 && isFinal(row.phase)) ? null : (
        <Progress id="training" title={capitalized(position(curves)) || "Training progress"} value={percent} label={[`${percent}%`, left].filter(Boolean).join(" · ")} />
      )}
      <Gallery hasGutter minWidths={{ default: "100%", lg: "26rem" }}>
        {series.slice(0, MOST_CHARTS).map((one) => (
          <MetricCard key={one.name} series={one} hasSteps={curves.step !== null} />
        ))}
      </Gallery>
      {series.length ? (
        <ExpandableSection toggleText="Show as table" isExpanded={open} onToggle={(_, next) => setOpen(next)}>
          <DataTable
            label="Training metrics"
            columns={["Metric", "Latest", "Min", "Max", "Points", "Rank"]}
            rows={series.map((one) => [one.name, significant(one.last, 6), significant(one.least, 6), significant(one.most, 6), String(one.count), String(one.rank)])}
            file={`${row.name}-metrics`}
          />
        </ExpandableSection>
      ) : null}
    </section>
  );
}

function MetricCard({ series, hasSteps }: { series: Series; hasSteps: boolean }) {
  const { name, values, last, least, most } = series;
  const axis = useMemo(() => axisOf(series, hasSteps), [series, hasSteps]);
  const lines = useMemo(() => [{ label: name, values, color: 0 }], [name, values]);
  const summary = `Final ${significant(last)}, min ${significant(least)}, max ${significant(most)}`;
  return (
    <Card isCompact component="section" aria-label={name}>
      <CardHeader actions={{ actions: <span className={styles["statValue"]}>{significant(last)}</span>, hasNoOffset: true }}>
        <CardTitle component="h3">{name}</CardTitle>
      </CardHeader>
      <CardBody>
        {isCurve(series) && isConstant(series) ? (
          <p>Constant over {plural(series.count, "value")}.</p>
        ) : isCurve(series) ? (
          <Chart label={`${name}. ${summary}`} xs={axis.xs} xName={axis.name} series={lines} format={significant} />
        ) : (
          <p>One value so far.</p>
        )}
        <span className={styles["note"]}>
          {isCurve(series) && !isConstant(series) ? `by ${axis.name} · min ${significant(least)} · max ${significant(most)}` : ""}
        </span>
      </CardBody>
    </Card>
  );
}
