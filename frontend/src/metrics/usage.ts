/** What was measured of the workers, as the charts show it. Pure. */
import type { Usage } from "../api/client";

type Band = Usage["cpu_cores"];
type WorkerSeries = "cpu_cores" | "memory_bytes" | "network" | "gpus" | "gpu_memory_bytes";

export interface Measure {
  readonly key: string;
  readonly title: string;
  readonly band: Band;
  readonly unit: "count" | "bytes" | "bytesPerSecond";
  /** What one worker may use, where it is limited. */
  readonly limit: number | null;
  /** The series of each worker, where there are some. */
  readonly perWorker: WorkerSeries | null;
}

const hasValues = (band: Band): boolean => band.high.some((value) => value > 0);

/** The measures that there is something to show of; GPUs come first. */
export function measuresOf(usage: Usage): readonly Measure[] {
  const { limit } = usage;
  const all: readonly Measure[] = [
    { key: "gpus", title: "GPU utilization (GPUs)", band: usage.gpus, unit: "count", limit: limit?.gpus || null, perWorker: "gpus" },
    { key: "gpu_memory", title: "GPU memory", band: usage.gpu_memory_bytes, unit: "bytes", limit: null, perWorker: "gpu_memory_bytes" },
    { key: "cpu", title: "CPU (cores)", band: usage.cpu_cores, unit: "count", limit: limit?.cores || null, perWorker: "cpu_cores" },
    { key: "memory", title: "Memory", band: usage.memory_bytes, unit: "bytes", limit: limit?.memory_bytes || null, perWorker: "memory_bytes" },
    { key: "network", title: "Network", band: usage.network, unit: "bytesPerSecond", limit: null, perWorker: "network" },
    { key: "io", title: "I/O wait (processes)", band: usage.io_wait, unit: "count", limit: null, perWorker: null },
  ];
  const always = ["cpu", "memory"];
  return all.filter(({ key, band }) => always.includes(key) || hasValues(band) || (key === "gpus" && Boolean(limit?.gpus)));
}
