import { ExpandableSection } from "@patternfly/react-core";
import { Table, Tbody, Td, Th, Thead, Tr } from "@patternfly/react-table";
import { useQuery } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { Link } from "react-router-dom";
import type uPlot from "uplot";
import { api, take, type JobDetail, type JobRow, type Usage } from "../api/client";
import { ProblemAlert } from "../components/ProblemAlert";
import { bytes, clock, linesBetween } from "../words";
import Curves from "./Curves";
import { axis, brushed, plotted } from "./plot";

type Band = Usage["cpu_cores"];
type Chosen = readonly [number, number];
const two = (value: number): string => value.toFixed(2);
const perSecond = (value: number): string => `${bytes(value)}/s`;

/** What a training told, and what the workers used: the middle one as a line, least and most as a band; the same numbers as a table. */
export default function Metrics({ detail }: { detail: JobDetail }) {
  const { namespace, name, phase } = detail.row;
  const [open, setOpen] = useState(false);
  const usage = useQuery({
    queryKey: ["job", namespace, name, "metrics"],
    queryFn: () => take(api.GET("/api/v1/trainjobs/{namespace}/{name}/metrics", { params: { path: { namespace, name } } })),
    refetchInterval: phase === "Running" ? 5000 : false,
  });
  return (
    <div className="stack">
      <Curves detail={detail} />
      {usage.error ? <ProblemAlert error={usage.error} /> : null}
      {usage.data ? <Used usage={usage.data} row={detail.row} open={open} setOpen={setOpen} /> : null}
    </div>
  );
}

interface UsedProps {
  usage: Usage;
  row: JobRow;
  open: boolean;
  setOpen: (open: boolean) => void;
}

function Used({ usage, row, open, setOpen }: UsedProps) {
  const [chosen, setChosen] = useState<Chosen | null>(null);
  if (!usage.samples)
    return (
      <p>
        Nothing was measured. Workers are measured about once a second while they run; this job
        {row.phase === "Running" ? " has just begun." : " was shorter than that, or has not run."}
      </p>
    );
  const { times, cpu_cores: cpu, memory_bytes: memory, network, io_wait: waits } = usage;
  const shared = { times, choose: setChosen };
  return (
    <>
      <p aria-live="polite">
        {chosen ? (
          <Link to={linesBetween(row, ...chosen)}>
            Lines from {clock(chosen[0] * 1000)} to {clock(chosen[1] * 1000)}
          </Link>
        ) : (
          "Draw over a part of a chart, or choose a time in the table, to read what was said then."
        )}
      </p>
      <Chart title="CPU cores in use" band={cpu} words={two} {...shared} />
      <Chart title="Memory in use" band={memory} words={bytes} {...shared} />
      {network.high.some(Boolean) ? <Chart title="Network" band={network} words={perSecond} {...shared} /> : null}
      {waits.high.some(Boolean) ? <Chart title="Waiting for disks" band={waits} words={two} {...shared} /> : null}
      <ExpandableSection toggleText="The same as a table" isExpanded={open} onToggle={(_, on) => setOpen(on)}>
        <Table aria-label="Usage over time" variant="compact">
          <Thead>
            <Tr>
              {["Time", "CPU least", "CPU middle", "CPU most", "by worker", "Memory middle", "Memory most", "by worker"].map((word, at) => (
                <Th key={`${word}${at}`}>{word}</Th>
              ))}
            </Tr>
          </Thead>
          <Tbody>
            {times.map((time, at) => (
              <Tr key={time}>
                <Td>
                  <Link to={linesBetween(row, times[at - 1] ?? time - 1, time)}>{clock(time * 1000)}</Link>
                </Td>
                <Td>{cpu.low[at]?.toFixed(2)}</Td>
                <Td>{cpu.middle[at]?.toFixed(2)}</Td>
                <Td>{cpu.high[at]?.toFixed(2)}</Td>
                <Td>{cpu.worst[at]}</Td>
                <Td>{bytes(memory.middle[at])}</Td>
                <Td>{bytes(memory.high[at])}</Td>
                <Td>{memory.worst[at]}</Td>
              </Tr>
            ))}
          </Tbody>
        </Table>
      </ExpandableSection>
    </>
  );
}

const SHARED = "usage";

interface ChartProps {
  title: string;
  times: readonly number[];
  band: Band;
  words: (value: number) => string;
  choose: (chosen: Chosen | null) => void;
}

/** One measured quantity over time; the part that is drawn over with the mouse is chosen. */
function Chart({ title, times, band, words, choose }: ChartProps) {
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!place.current) return undefined;
    const look = axis();
    const value = (_: uPlot, raw: number | null): string => (raw === null ? "–" : words(raw));
    return plotted(
      {
        height: 220,
        cursor: { sync: { key: SHARED }, drag: { setScale: false } },
        hooks: { setSelect: [(chart) => choose(brushed(chart))] },
        scales: { y: { range: (_, __, most) => [0, most * 1.1 || 1] } },
        axes: [look, { ...look, size: 80, values: (_, ticks) => ticks.map(words) }],
        series: [
          {},
          { label: "least", stroke: "transparent", value },
          { label: "most", stroke: "#a37ef5", value },
          { label: "middle", stroke: "#06c", width: 2, value },
        ],
        bands: [{ series: [2, 1], fill: "rgba(0, 102, 204, 0.15)" }],
      },
      [[...times], [...band.low], [...band.high], [...band.middle]],
      place.current,
    );
  }, [times, band, words, choose]);
  const last = band.high.length - 1;
  const sentence = `${title}: most ${words(band.high[last] ?? 0)}, by worker ${band.worst[last] ?? 0}, at the end`;
  return (
    <figure>
      <figcaption>
        <h2>{title}</h2>
      </figcaption>
      <div ref={place} role="img" aria-label={sentence} />
    </figure>
  );
}
