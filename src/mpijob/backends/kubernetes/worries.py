"""What is worrying about a cluster job, from what the client sees: the metrics API and the pods' last lines.

The metrics API tells one measure a worker, so a trend is seen only by who asks again (a watch). What ranks
compute is known for each worker together; the disk of a node is not seen at all.
"""

from __future__ import annotations

from collections.abc import Sequence

from mpijob.backends.kubernetes import logs
from mpijob.backends.kubernetes.api import Api
from mpijob.errors import Finding
from mpijob.model import JobState, LogLine, LogQuery, Sample
from mpijob.observation import vitals, warnings

MOST_SAMPLES = 4000
_LAST_LINES = 5000
_LAST_SECONDS = 1800.0


def last_lines(api: Api, voices: tuple[logs.Voice, ...], now: float) -> tuple[LogLine, ...]:
    """Return what was said of late."""
    return tuple(logs.stored(api, voices, LogQuery(since=now - _LAST_SECONDS, tail=_LAST_LINES)))


def judged(
    state: JobState, samples: Sequence[Sample], lines: Sequence[LogLine], quiet_seconds: float, now: float
) -> tuple[Finding, ...]:
    """Return the warnings that hold now; what was measured for a shorter time than it takes says nothing yet."""
    if quiet_seconds <= 0:
        return ()
    mine = [line for line in lines if line.attempt == state.attempt]
    known = [sample for sample in samples if sample.attempt == state.attempt]
    long = bool(known) and known[-1].time - known[0].time >= quiet_seconds
    seen = vitals.Vitals(
        now=now,
        state=state,
        quiet_seconds=quiet_seconds,
        samples=tuple(known),
        talks=vitals.talks_of(mine),
        steps=vitals.steps_of(mine),
        loads=vitals.loads_of(known, state, now - quiet_seconds) if long else (),
        was_busy=any(sample.cpu_cores > vitals.BUSY_CORES for sample in known),
        retries=max(0, state.attempt - 1) if state.attempts_allowed > 1 else 0,
    )
    return warnings.judge(seen)
