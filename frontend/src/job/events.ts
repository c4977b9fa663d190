import type { JobEvent } from "../api/client";

export interface FoldedEvent extends JobEvent {
  readonly count: number;
  /** When it happened last. */
  readonly last: number;
}

/** Events that say the same, one after the other, as one with their number. */
export function foldedEvents(events: readonly JobEvent[]): readonly FoldedEvent[] {
  const folded: FoldedEvent[] = [];
  for (const event of events) {
    const before = folded.at(-1);
    if (before && before.reason === event.reason && before.message === event.message && before.worker === event.worker)
      folded[folded.length - 1] = { ...before, count: before.count + 1, last: event.time };
    else folded.push({ ...event, count: 1, last: event.time });
  }
  return folded;
}
