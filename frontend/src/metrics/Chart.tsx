import "uplot/dist/uPlot.min.css";
import { useEffect, useRef } from "react";
import uPlot from "uplot";
import { clockSeconds, dateTime, type Zone } from "../lib/time";
import { usePreferences } from "../shell/preferences";
import { useIsDark } from "../shell/theme";
import styles from "./metrics.module.css";

export interface ChartSeries {
  readonly label: string;
  readonly values: readonly (number | null)[];
  /** Which of the chart colours; the limit and the band have their own. */
  readonly color: number | "limit" | "edge";
}

interface Props {
  /** What the chart says, for those who do not see it. */
  label: string;
  xs: readonly number[];
  /** What the x axis counts; `time` in seconds since 1970. */
  xName: string;
  series: readonly ChartSeries[];
  /** The two series between which the chart is filled. */
  band?: readonly [number, number];
  format: (value: number) => string;
  fromZero?: boolean;
  height?: number;
  /** Charts of one name share their cursor. */
  syncKey?: string;
  /** Names the lines below the chart: where there are several. */
  hasLegend?: boolean;
  onBrush?: (range: readonly [number, number] | null) => void;
}

const AXIS_PX = 64;

/** A chart over steps or time: drawn by uPlot, with the values at the cursor in a tooltip. */
export function Chart({ label, xs, xName, series, band, format, fromZero = false, height = 200, syncKey, hasLegend = false, onBrush }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const { zone } = usePreferences();
  const dark = useIsDark();
  const brush = useRef(onBrush);
  useEffect(() => {
    brush.current = onBrush;
  });
  useEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    const look = colorsOf(element);
    const isTime = xName === "time";
    const axis: uPlot.Axis = { stroke: look.text, grid: { stroke: look.grid, width: 1 }, ticks: { stroke: look.grid, width: 1 }, font: "12px sans-serif" };
    const chart = new uPlot(
      {
        width: element.clientWidth,
        height,
        legend: { show: false },
        cursor: {
          points: { size: 6 },
          drag: { setScale: false, x: Boolean(brush.current), y: false },
          ...(syncKey ? { sync: { key: syncKey } } : {}),
        },
        ...(zone === "utc" ? { tzDate: (seconds: number) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC") } : {}),
        hooks: {
          setSelect: [
            ({ select, posToVal }) => brush.current?.(select.width > 0 ? [posToVal(select.left, "x"), posToVal(select.left + select.width, "x")] : null),
          ],
        },
        scales: { x: { time: isTime }, y: { range: (_, low, high) => yRange(low, high, fromZero) } },
        axes: [{ ...axis, space: 80, ...(isTime ? { incrs: TIME_STEPS, values: (_: uPlot, ticks: number[]) => timeTicks(ticks, zone) } : {}) }, { ...axis, size: AXIS_PX, values: (_, ticks) => ticks.map((tick) => format(tick)) }],
        series: [{}, ...series.map(({ label: name, color }) => seriesLook(name, color, look))],
        ...(band ? { bands: [{ series: [band[0] + 1, band[1] + 1], fill: look.band }] } : {}),
        plugins: [tooltip({ series, xName, format, zone })],
      } as uPlot.Options,
      [[...xs], ...series.map(({ values }) => [...values])] as uPlot.AlignedData,
      element,
    );
    const resize = new ResizeObserver(([entry]) => {
      if (entry) chart.setSize({ width: entry.contentRect.width, height });
    });
    resize.observe(element);
    return () => {
      resize.disconnect();
      chart.destroy();
    };
  }, [xs, xName, series, band, format, fromZero, height, syncKey, zone, dark]);
  return (
    <>
      <div ref={box} className={styles["chart"]} role="img" aria-label={label} />
      {hasLegend ? (
        <ul className={`${styles["chart"]} ${styles["legend"]}`} aria-label="Legend">
          {series.map(({ label: name, color }) => (
            <li key={name}>
              {color === "limit" ? <span className={styles["limitSwatch"]} /> : <span className={styles["swatch"]} style={{ background: `var(--chart-${Number(color) % LINES})` }} />}
              {name}
            </li>
          ))}
        </ul>
      ) : null}
    </>
  );
}

const DAY_SECONDS = 86400;

/** Whole seconds at least: the same time twice would say nothing. */
const TIME_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, DAY_SECONDS, 2 * DAY_SECONDS, 7 * DAY_SECONDS, 30 * DAY_SECONDS];

/** Times as the page shows them everywhere; the day is named where a chart spans several. */
function timeTicks(ticks: readonly number[], zone: Zone): string[] {
  const span = (ticks.at(-1) ?? 0) - (ticks[0] ?? 0);
  return ticks.map((tick) => {
    if (span > DAY_SECONDS) return dateTime(tick, zone).replace(/, \d{4}, (\d\d:\d\d):\d\d/, " $1");
    const time = clockSeconds(tick * 1000, zone);
    return span >= 600 ? time.slice(0, 5) : time;
  });
}

interface Colors {
  readonly text: string;
  readonly grid: string;
  readonly limit: string;
  readonly band: string;
  readonly edge: string;
  readonly lines: readonly string[];
}

const LINES = 8;

function colorsOf(element: HTMLElement): Colors {
  const style = getComputedStyle(element);
  const color = (name: string): string => style.getPropertyValue(name).trim();
  return {
    text: color("--chart-text"),
    grid: color("--chart-grid"),
    limit: color("--chart-limit"),
    band: color("--chart-band"),
    edge: color("--chart-edge"),
    lines: Array.from({ length: LINES }, (_, index) => color(`--chart-${index}`)),
  };
}

function seriesLook(label: string, color: ChartSeries["color"], look: Colors): uPlot.Series {
  if (color === "limit") return { label, stroke: look.limit, width: 1.5, dash: [6, 4], points: { show: false } };
  if (color === "edge") return { label, stroke: look.edge, width: 1, points: { show: false } };
  return { label, stroke: look.lines[color % LINES] ?? look.text, width: 2, spanGaps: true };
}

const MARGIN = 0.08;

function yRange(low: number | null, high: number | null, fromZero: boolean): [number, number] {
  const [least, most] = [fromZero ? Math.min(0, low ?? 0) : (low ?? 0), high ?? 1];
  const span = most - least || Math.abs(most) || 1;
  return [fromZero ? least : least - MARGIN * span, most + MARGIN * span];
}

interface TooltipOptions {
  series: readonly ChartSeries[];
  xName: string;
  format: (value: number) => string;
  zone: Zone;
}

/** The values at the cursor, beside it. */
function tooltip({ series, xName, format, zone }: TooltipOptions): uPlot.Plugin {
  const box = document.createElement("div");
  box.className = styles["tooltip"] ?? "";
  return {
    hooks: {
      init: (chart) => {
        box.hidden = true;
        chart.over.append(box);
      },
      setCursor: (chart) => {
        const { idx, left = 0, top = 0 } = chart.cursor;
        const x = idx === null || idx === undefined ? undefined : chart.data[0][idx];
        box.hidden = x === undefined || left < 0;
        if (box.hidden || x === undefined || idx === null || idx === undefined) return;
        const head = xName === "time" ? clockSeconds(x * 1000, zone) : `${xName} ${x}`;
        const lines = series.flatMap(({ label }, at) => {
          const value = chart.data[at + 1]?.[idx];
          return value === null || value === undefined ? [] : [`${label}: ${format(value)}`];
        });
        box.replaceChildren(...[head, ...lines].map((text) => Object.assign(document.createElement("div"), { textContent: text })));
        box.title = xName === "time" ? dateTime(x, zone) : "";
        const flip = left > chart.over.clientWidth / 2;
        box.style.transform = `translate(${flip ? left - box.offsetWidth - 12 : left + 12}px, ${Math.min(top, chart.over.clientHeight - box.offsetHeight)}px)`;
      },
    },
  };
}
