/** The workers of a job with what each of them has, by group. Pure. */
import { plural, quantity } from "./format";

interface Size {
  readonly cpu?: unknown;
  readonly memory?: unknown;
  readonly gpu?: unknown;
}

interface Sized {
  readonly slots?: unknown;
  readonly resources?: Size | null;
  readonly groups?: readonly { readonly name?: unknown; readonly workers?: unknown; readonly slots?: unknown; readonly resources?: Size | null }[];
}

export interface WorkersPart {
  readonly name: string;
  readonly workers: number;
  readonly slots: number;
  readonly resources: Size;
}

/** Workers that are alike: those of no group, then each group. */
export function partsOf(job: Sized, workers: number): readonly WorkersPart[] {
  const own = { slots: Number(job.slots ?? 1), resources: job.resources ?? {} };
  const groups = (job.groups ?? []).map((group) => ({
    name: String(group.name ?? ""),
    workers: Number(group.workers ?? 0),
    slots: Number(group.slots ?? own.slots),
    resources: group.resources ?? own.resources,
  }));
  const others = workers - groups.reduce((sum, group) => sum + group.workers, 0);
  return others > 0 || !groups.length ? [{ name: "", workers: others, ...own }, ...groups] : groups;
}

/** What one worker has: `2 GPUs, 1 CPU, 64 GiB`. */
export function sizeText({ cpu, memory, gpu }: Size): string {
  const gpus = Number(gpu ?? 0);
  return [gpus ? plural(gpus, "GPU") : "", `${quantity(String(cpu ?? "1"))} CPU`, quantity(String(memory ?? "1Gi"))].filter(Boolean).join(", ");
}

/** Workers with what each of them has: `2 × (1 GPU, …) + 4 × cpu (…)`. */
export const workersText = (job: Sized, workers: number): string =>
  partsOf(job, workers)
    .map((part) => `${part.workers} × ${part.name ? `${part.name} ` : ""}(${sizeText(part.resources)})`)
    .join(" + ");
