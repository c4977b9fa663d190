import { Progress } from "@patternfly/react-core";
import { Table, Tbody, Td, Th, Thead, Tr } from "@patternfly/react-table";
import { useQuery } from "@tanstack/react-query";
import { useEffect, useRef } from "react";
import type uPlot from "uplot";
import type { components } from "../api/schema";
import { api, take, type JobDetail } from "../api/client";
import { duration } from "../words";
import { axis, plotted } from "./plot";

type Told = components["schemas"]["Curves"];
type Series = components["schemas"]["Series"];

const NAMES: Record<string, string> = { mlflow: "MLflow", tensorboard: "TensorBoard" };
const number = (value: number | null | undefined): string =>
  value === null || value === undefined ? "NaN" : String(Number(value.toPrecision(6)));

/** A training's own metrics: how far it is, a curve of each, the numbers as a table, where else they are seen. */
export default function Curves({ detail }: { detail: JobDetail }) {
  const { namespace, name, phase } = detail.row;
  const params = { params: { path: { namespace, name } } };
  const often = phase === "Running" ? 5000 : false;
  const told = useQuery({
    queryKey: ["job", namespace, name, "curves"],
    queryFn: () => take(api.GET("/api/v1/trainjobs/{namespace}/{name}/curves", params)),
    refetchInterval: often,
  });
  const links = useQuery({
    queryKey: ["job", namespace, name, "links"],
    queryFn: () => take(api.GET("/api/v1/trainjobs/{namespace}/{name}/links", params)),
    refetchInterval: often,
    enabled: Boolean(told.data?.series?.length),
  });
  const series = told.data?.series ?? [];
  if (!told.data || (!series.length && (told.data.progress ?? null) === null)) return null;
  return (
    <section aria-label="Training" className="stack">
      <Far told={told.data} />
      <p>
        {Object.entries(links.data?.items ?? {}).map(([tool, address]) => (
          <a key={tool} href={address} target="_blank" rel="noreferrer" className="pf-v6-u-mr-md">
            {NAMES[tool] ?? tool}
          </a>
        ))}
      </p>
      <div className="curves">
        {series.slice(0, 12).map((one) => (
          <Curve key={one.name} series={one} />
        ))}
      </div>
      {series.length ? <Numbers series={series} /> : null}
    </section>
  );
}

function Far({ told }: { told: Told }) {
  const parts = [
    ["epoch", told.epoch, told.epochs] as const,
    ["step", told.step, told.steps] as const,
  ].flatMap(([word, at, of]) => (at === null || at === undefined ? [] : [`${word} ${at}${of ? ` of ${of}` : ""}`]));
  if (told.eta !== null && told.eta !== undefined) parts.push(`ends in about ${duration(told.eta)}`);
  const words = parts.join(", ");
  if (told.progress === null || told.progress === undefined) return words ? <p>{words}</p> : null;
  return <Progress value={Math.round(told.progress * 100)} title={words || "Training"} aria-label="Training done" />;
}

function Curve({ series }: { series: Series }) {
  const place = useRef<HTMLDivElement>(null);
  const { name, times, steps, values } = series;
  useEffect(() => {
    if (!place.current) return undefined;
    const look = axis();
    const bySteps = rising(steps);
    const value = (_: uPlot, raw: number | null): string => (raw === null ? "–" : number(raw));
    return plotted(
      {
        height: 200,
        scales: { x: { time: !bySteps } },
        axes: [look, { ...look, size: 70, values: (_, ticks) => ticks.map(number) }],
        series: [{ label: bySteps ? "step" : "time" }, { label: name, stroke: "#06c", width: 2, value }],
      },
      [bySteps ? (steps as number[]) : [...times], [...values]],
      place.current,
    );
  }, [name, times, steps, values]);
  return (
    <figure>
      <figcaption>
        <h2>{name}</h2>
      </figcaption>
      <div ref={place} role="img" aria-label={`${name}: ${number(series.last)} at the end, least ${number(series.least)}, most ${number(series.most)}`} />
    </figure>
  );
}

/** Whether steps can be an axis: all there, and never going back. */
function rising(steps: readonly (number | null)[]): boolean {
  return steps.every((one, at) => one !== null && (at === 0 || one > (steps[at - 1] ?? Infinity)));
}

function Numbers({ series }: { series: readonly Series[] }) {
  return (
    <Table aria-label="Training metrics" variant="compact">
      <Thead>
        <Tr>
          {["Metric", "Last", "Least", "Most", "Told", "By rank"].map((word) => (
            <Th key={word}>{word}</Th>
          ))}
        </Tr>
      </Thead>
      <Tbody>
        {series.map((one) => (
          <Tr key={one.name}>
            <Td>{one.name}</Td>
            <Td>{number(one.last)}</Td>
            <Td>{number(one.least)}</Td>
            <Td>{number(one.most)}</Td>
            <Td>{one.count}</Td>
            <Td>{one.rank}</Td>
          </Tr>
        ))}
      </Tbody>
    </Table>
  );
}
