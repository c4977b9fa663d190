/** How far a training is, in words. Pure. */
import { roughly } from "./format";

interface Reached {
  readonly progress?: number | null;
  readonly step?: number | null;
  readonly steps?: number | null;
  readonly epoch?: number | null;
  readonly epochs?: number | null;
  readonly eta?: number | null;
}

const known = (value: number | null | undefined): value is number => value !== null && value !== undefined;

/** `epoch 3 of 10`, `step 820`; "" where neither is known. */
export function position({ step, steps, epoch, epochs }: Reached): string {
  const part = (word: string, at: number | null | undefined, of: number | null | undefined): string =>
    known(at) ? `${word} ${at}${known(of) && of ? ` of ${of}` : ""}` : "";
  return [part("epoch", epoch, epochs), part("step", step, steps)].filter(Boolean).join(", ");
}

/** The time left, while the job runs and gets on. */
export const timeLeft = ({ eta }: Reached, runs: boolean): string => (runs && known(eta) ? `about ${roughly(eta)} left` : "");

/** Progress in percent, null where it is not known. */
export const progressPercent = ({ progress }: Reached): number | null => (known(progress) ? Math.round(100 * progress) : null);
