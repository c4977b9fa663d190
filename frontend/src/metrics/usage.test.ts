import { expect, it } from "vitest";
import type { Usage } from "../api/client";
import { measuresOf } from "./usage";

const band = (...high: number[]) => ({ low: high, middle: high, high, worst: high.map(() => 0) });
const usage = (change: Partial<Usage>): Usage =>
  ({ times: [1, 2], cpu_cores: band(1, 2), memory_bytes: band(1, 2), io_wait: band(0, 0), network: band(0, 0), gpus: band(0, 0), gpu_memory_bytes: band(0, 0), samples: 2, ...change }) as Usage;

it("shows what was used, with the limit of a worker", () => {
  expect(measuresOf(usage({})).map(({ key }) => key)).toEqual(["cpu", "memory"]);
  const gpus = measuresOf(usage({ gpus: band(0.5, 1), network: band(0, 10), limit: { cores: 4, memory_bytes: 100, gpus: 2 } }));
  expect(gpus.map(({ key, limit }) => [key, limit])).toEqual([
    ["gpus", 2],
    ["cpu", 4],
    ["memory", 100],
    ["network", null],
  ]);
});

it("shows that GPUs were given and not used", () => {
  expect(measuresOf(usage({ limit: { gpus: 1 } })).map(({ key }) => key)).toContain("gpus");
});
