/** Jobs side by side: their results as rows with the best value, their curves over one another. Pure. */
import type { Comparison, Curves, JobAccount, Series } from "../api/client";
import { shownPath, shownValue } from "../job/changes";
import { bytes, duration, money, significant } from "../lib/format";
import type { ChartSeries } from "../metrics/Chart";
import { axisOf, byImportance, isBetterLow, isConstant, isCurve, isSetting } from "../metrics/curves";

export interface ComparedJob {
  readonly column: Comparison["jobs"][number];
  readonly account: JobAccount | null;
  readonly curves: Curves | null;
}

export interface ComparedRow {
  readonly label: string;
  readonly values: readonly string[];
  /** The index of the best value, where there is one that is better than another. */
  readonly best?: number;
}

/** The index of the best number; undefined where all are alike or only one is known. */
export function bestOf(values: readonly (number | null | undefined)[], lowIsBetter: boolean): number | undefined {
  const known = values.flatMap((value, index) => (value === null || value === undefined ? [] : [{ value, index }]));
  if (known.length < 2 || new Set(known.map(({ value }) => value)).size < 2) return undefined;
  return known.reduce((best, one) => ((lowIsBetter ? one.value < best.value : one.value > best.value) ? one : best)).index;
}

const DASH = "–";

interface NumberRow {
  readonly label: string;
  readonly values: readonly (number | null | undefined)[];
  readonly format: (value: number) => string;
  readonly lowIsBetter: boolean;
}

/** A row of numbers; a job that failed is best in nothing. */
function numberRow(jobs: readonly ComparedJob[], { label, values, format, lowIsBetter }: NumberRow): ComparedRow[] {
  if (values.every((value) => value === null || value === undefined)) return [];
  const texts = values.map((value) => (value === null || value === undefined ? DASH : format(value)));
  const best = bestOf(values.map((value, index) => (jobs[index]?.column.phase === "Failed" ? null : value)), lowIsBetter);
  const isAlone = best !== undefined && texts.filter((text) => text === texts[best]).length === 1;
  return [{ label, values: texts, ...(isAlone ? { best } : {}) }];
}

const METRICS_SHOWN = 8;

/** How each job went: status, duration, cost, memory, final metrics. */
export function comparedRows(jobs: readonly ComparedJob[]): readonly ComparedRow[] {
  const currency = jobs.find(({ account }) => account?.currency)?.account?.currency ?? "";
  const failed = jobs.some(({ column }) => column.phase === "Failed");
  return [
    { label: "Status", values: jobs.map(({ column }) => column.phase) },
    ...(failed ? [{ label: "Cause", values: jobs.map(({ column }) => (column.phase === "Failed" ? column.result : DASH)) }] : []),
    ...numberRow(jobs, { label: "Duration", values: jobs.map(({ column }) => column.duration_seconds), format: duration, lowIsBetter: true }),
    ...numberRow(jobs, { label: "Cost", values: jobs.map(({ account }) => account?.cost), format: (value) => money(value, currency), lowIsBetter: true }),
    ...numberRow(jobs, { label: "Peak worker memory", values: jobs.map(({ column }) => column.account?.peak_bytes || null), format: bytes, lowIsBetter: true }),
    ...metricRows(jobs),
  ];
}

const seriesOf = (curves: Curves | null, name: string): Series | undefined => curves?.series?.find((one) => one.name === name);

function metricNames(all: readonly (Curves | null)[]): readonly string[] {
  const first = new Map(all.flatMap((curves) => curves?.series ?? []).map((series) => [series.name, series]));
  return byImportance([...first.values()]).map(({ name }) => name);
}

const metricRows = (jobs: readonly ComparedJob[]): readonly ComparedRow[] =>
  metricNames(jobs.map(({ curves }) => curves))
    .slice(0, METRICS_SHOWN)
    .flatMap((name) => {
      const values = jobs.map(({ curves }) => seriesOf(curves, name)?.last);
      const rows = numberRow(jobs, { label: `Final ${name}`, values, format: significant, lowIsBetter: isBetterLow(name) });
      return isSetting(name) ? rows.map(({ label, values }) => ({ label, values })) : rows;
    });

/** The parts of the configuration that differ, under the labels of the form. */
export const configurationRows = (comparison: Comparison): readonly ComparedRow[] =>
  comparison.differences.map(({ field, values }) => ({ label: shownPath(field), values: values.map((value) => shownValue(JSON.stringify(value ?? null))) }));

export interface OverlaidChart {
  readonly metric: string;
  readonly xName: string;
  readonly xs: readonly number[];
  readonly series: readonly ChartSeries[];
}

const CHARTS_SHOWN = 6;

/** The metrics of which several jobs have a curve, over their steps, or over the time since each began. */
export function overlaid(names: readonly string[], all: readonly (Curves | null)[]): readonly OverlaidChart[] {
  return metricNames(all).flatMap((metric): OverlaidChart[] => {
    const drawn = all.flatMap((curves, job) => {
      const series = seriesOf(curves, metric);
      return series && isCurve(series) ? [{ job, series, axis: axisOf(series, curves?.step !== null) }] : [];
    });
    if (drawn.length < 2 || drawn.every(({ series }) => isConstant(series))) return [];
    const overTime = drawn.some(({ axis }) => axis.name === "time");
    const points = drawn.map(({ job, series, axis }) => ({
      job,
      at: new Map((overTime ? series.times.map((time) => Math.round(time - (series.times[0] ?? 0))) : axis.xs).map((x, index) => [x, series.values[index] ?? null])),
    }));
    const xs = [...new Set(points.flatMap(({ at }) => [...at.keys()]))].sort((one, other) => one - other);
    return [
      {
        metric,
        xName: overTime ? "second" : (drawn[0]?.axis.name ?? "step"),
        xs,
        series: points.map(({ job, at }) => ({ label: names[job] ?? "", values: xs.map((x) => at.get(x) ?? null), color: job })),
      },
    ];
  }).slice(0, CHARTS_SHOWN);
}
