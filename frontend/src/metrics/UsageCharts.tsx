import { Card, CardBody, CardHeader, CardTitle, ExpandableSection, Gallery } from "@patternfly/react-core";
import { useMemo, useState } from "react";
import { Link } from "react-router-dom";
import type { JobRow, Usage } from "../api/client";
import { DataTable } from "../components/DataTable";
import { bytes, bytesPerSecond, decimal } from "../lib/format";
import { logsBetween } from "../lib/links";
import { clockSeconds } from "../lib/time";
import { usePreferences } from "../shell/preferences";
import { Chart, type ChartSeries } from "./Chart";
import { HeatMap } from "./HeatMap";
import styles from "./metrics.module.css";
import { measuresOf, type Measure } from "./usage";

export type UsageView = "band" | "workers" | "heat";

const MOST_LINES = 12;
const NO_WORKERS: NonNullable<Usage["workers"]> = [];

/** What the workers used: a chart for each measure, with the limit of one worker. */
export function UsageCharts({ usage, row, view }: { usage: Usage; row: JobRow; view: UsageView }) {
  const { zone } = usePreferences();
  const [range, setRange] = useState<readonly [number, number] | null>(null);
  const [open, setOpen] = useState(false);
  const measures = useMemo(() => measuresOf(usage), [usage]);
  return (
    <>
      <p aria-live="polite" className={styles["note"]}>
        {range ? (
          <Link to={logsBetween(row, ...range)}>
            View logs {clockSeconds(range[0] * 1000, zone)}–{clockSeconds(range[1] * 1000, zone)}
          </Link>
        ) : (
          "Drag across a chart to open the logs for that period."
        )}
      </p>
      <Gallery hasGutter minWidths={{ default: "100%", lg: "26rem" }}>
        {measures.map((measure) => (
          <MeasureCard key={measure.key} measure={measure} usage={usage} view={view} onBrush={setRange} />
        ))}
      </Gallery>
      <ExpandableSection toggleText="Show as table" isExpanded={open} onToggle={(_, next) => setOpen(next)}>
        {open ? <UsageTable usage={usage} row={row} /> : null}
      </ExpandableSection>
    </>
  );
}

const FORMATS: Record<Measure["unit"], (value: number) => string> = { count: decimal, bytes, bytesPerSecond };

interface MeasureProps {
  measure: Measure;
  usage: Usage;
  view: UsageView;
  onBrush: (range: readonly [number, number] | null) => void;
}

function MeasureCard({ measure, usage, view, onBrush }: MeasureProps) {
  const { band, title, unit, limit, perWorker } = measure;
  const format = FORMATS[unit];
  const last = band.high.length - 1;
  const peak = Math.max(0, ...band.high);
  const worst = band.worst[band.high.indexOf(peak)] ?? 0;
  const { workers = NO_WORKERS } = usage;
  const series = useMemo((): readonly ChartSeries[] => {
    const limitLine: ChartSeries[] = limit ? [{ label: "Limit", values: usage.times.map(() => limit), color: "limit" }] : [];
    if (view === "workers" && perWorker) {
      const highest = [...workers].sort((one, other) => peakOf(other[perWorker]) - peakOf(one[perWorker])).slice(0, MOST_LINES);
      return [...highest.map((worker, index) => ({ label: `Worker ${worker.worker}`, values: worker[perWorker], color: index })), ...limitLine];
    }
    return [
      { label: "min", values: band.low, color: "edge" },
      { label: "max", values: band.high, color: "edge" },
      { label: "median", values: band.middle, color: 0 },
      ...limitLine,
    ];
  }, [view, perWorker, workers, band, limit, usage.times]);
  const label = `${title}: latest max ${format(band.high[last] ?? 0)} (worker ${band.worst[last] ?? 0}), highest ${format(peak)} (worker ${worst})${limit ? `, limit ${format(limit)}` : ""}`;
  return (
    <Card isCompact component="section" aria-label={title}>
      <CardHeader>
        <CardTitle component="h3">{title}</CardTitle>
      </CardHeader>
      <CardBody>
        {view === "heat" && perWorker && workers.length ? (
          <HeatMap
            label={label}
            rows={workers.map((worker) => `Worker ${worker.worker}`)}
            columns={usage.times.length}
            value={(at, column) => workers[at]?.[perWorker][column] ?? null}
            most={limit ?? peak}
            mostLabel={format(limit ?? peak)}
            describe={(at, _, value) => `Worker ${workers[at]?.worker}: ${format(value)}`}
          />
        ) : (
          <Chart label={label} xs={usage.times} xName="time" series={series} {...(view === "band" ? { band: BAND } : {})} format={format} fromZero syncKey="usage" hasLegend={view === "workers"} onBrush={onBrush} />
        )}
        <span className={styles["note"]}>
          Highest: worker {worst}, {format(peak)}
          {limit ? ` of ${format(limit)}` : ""}
          {view === "workers" && workers.length > MOST_LINES ? ` · the ${MOST_LINES} highest of ${workers.length} workers` : ""}
        </span>
      </CardBody>
    </Card>
  );
}

const BAND = [1, 0] as const;
const peakOf = (values: readonly (number | null)[]): number => values.reduce<number>((most, value) => Math.max(most, value ?? 0), 0);

function UsageTable({ usage, row }: { usage: Usage; row: JobRow }) {
  const { zone } = usePreferences();
  const { times, cpu_cores: cpu, memory_bytes: memory } = usage;
  return (
    <DataTable
      label="Usage over time"
      columns={["Time", "CPU min", "CPU median", "CPU max", "Highest worker (CPU)", "Memory median", "Memory max", "Highest worker (memory)"]}
      rows={times.map((time, at) => [
        <Link key="time" to={logsBetween(row, times[at - 1] ?? time - 1, time)}>
          {clockSeconds(time * 1000, zone)}
        </Link>,
        decimal(cpu.low[at] ?? 0),
        decimal(cpu.middle[at] ?? 0),
        decimal(cpu.high[at] ?? 0),
        String(cpu.worst[at] ?? ""),
        bytes(memory.middle[at]),
        bytes(memory.high[at]),
        String(memory.worst[at] ?? ""),
      ])}
    />
  );
}
