import { Alert, Button, Progress, ProgressMeasureLocation } from "@patternfly/react-core";
import type { SizingReport, Fit, Plan } from "../api/client";
import { bytes, duration, plural } from "../words";

interface Props {
  plan: Plan | undefined;
  fit: Fit | undefined;
  counsel: SizingReport | undefined;
  workers: number;
  onWorkers: (workers: number) => void;
  onAdvice: (field: string, value: string) => void;
}

const LOOK = { "fits now": "success", waits: "info", "can never fit": "danger", "not known": "info" } as const;

/** Whether the job has room: what it takes of what is free, the largest that would start now, what earlier runs say. */
export function Room({ plan, fit, counsel, workers, onWorkers, onAdvice }: Props) {
  const most = fit?.starts_now ?? null;
  const advice = counsel?.advice ?? [];
  return (
    <div className="stack" data-testid="room">
      {plan ? <Bars plan={plan} /> : null}
      {fit ? (
        <Alert isInline variant={LOOK[fit.verdict]} title={fit.message} component="p" data-testid="fit">
          {fit.hint ? <p>{fit.hint}</p> : null}
          {fit.ahead_jobs ? <p>{plural(fit.ahead_jobs, "job")} before it.</p> : null}
          {fit.wait_range ? (
            <p>
              It may start in {duration(fit.wait_range[0])} to {duration(fit.wait_range[1])}, by {plural(fit.basis ?? 0, "job")} that ended.
            </p>
          ) : null}
          {most !== null && most >= 1 && most !== workers && (most < workers || fit.verdict !== "fits now") ? (
            <Button variant="secondary" size="sm" onClick={() => onWorkers(most)}>
              Use {plural(most, "worker")}: that would start now
            </Button>
          ) : null}
        </Alert>
      ) : null}
      {advice.length ? (
        <Alert isInline variant="info" component="p" title={`What ${plural(counsel?.runs ?? 0, "earlier run")} of this program used`}>
          <ul className="advice">
            {advice.map((one) => (
              <li key={one.field}>
                {one.reason}{" "}
                <Button variant="link" isInline onClick={() => onAdvice(one.field, one.value)}>
                  Use {one.field} {one.value}
                </Button>
              </li>
            ))}
          </ul>
        </Alert>
      ) : null}
    </div>
  );
}

function Bars({ plan }: { plan: Plan }) {
  const { needs = {}, free = {}, capacity = {} } = plan;
  const all: [string, number, number, number, (value: number) => string][] = [
    ["CPU cores", needs.cores ?? 0, free.cores ?? 0, capacity.cores ?? 0, (value) => String(Number(value.toFixed(2)))],
    ["Memory", needs.memory_bytes ?? 0, free.memory_bytes ?? 0, capacity.memory_bytes ?? 0, bytes],
    ["GPUs", needs.gpus ?? 0, free.gpus ?? 0, capacity.gpus ?? 0, String],
  ];
  return (
    <>
      {all
        .filter(([, need, , whole]) => whole > 0 || need > 0)
        .map(([word, need, left, whole, words]) => (
          <Progress
            key={word}
            id={`needs-${word.replace(/\W+/g, "-")}`}
            title={word}
            value={left > 0 ? Math.min(100, (100 * need) / left) : need > 0 ? 100 : 0}
            label={`needs ${words(need)}; ${words(left)} of ${words(whole)} free`}
            valueText={`needs ${words(need)}; ${words(left)} of ${words(whole)} free`}
            measureLocation={ProgressMeasureLocation.top}
            variant={need > left ? "warning" : undefined}
            size="sm"
          />
        ))}
    </>
  );
}
