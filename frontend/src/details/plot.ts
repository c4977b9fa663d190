import "uplot/dist/uPlot.min.css";
import uPlot from "uplot";

/** How an axis is drawn in the page's colours of the moment. */
export function axis(): uPlot.Axis {
  const style = getComputedStyle(document.documentElement);
  const text = style.getPropertyValue("--pf-t--global--text--color--regular") || "#151515";
  const grid = style.getPropertyValue("--pf-t--global--border--color--default") || "#c7c7c7";
  return { stroke: text, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 } };
}

/** Draw a chart as wide as its place, also when that changes; returns what takes it away. */
export function plotted(options: Omit<uPlot.Options, "width">, data: uPlot.AlignedData, place: HTMLElement): () => void {
  const { height } = options;
  const chart = new uPlot({ ...options, width: place.clientWidth }, data, place);
  const fit = new ResizeObserver(([entry]) => {
    if (entry) chart.setSize({ width: entry.contentRect.width, height });
  });
  fit.observe(place);
  return () => {
    fit.disconnect();
    chart.destroy();
  };
}

/** The times between which a chart was drawn over, or null where it was only clicked. */
export function brushed({ select, posToVal }: uPlot): readonly [number, number] | null {
  return select.width > 0 ? [posToVal(select.left, "x"), posToVal(select.left + select.width, "x")] : null;
}
