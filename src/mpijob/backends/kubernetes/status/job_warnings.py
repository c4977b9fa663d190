"""What is worrying about a cluster job, from what the client sees: the metrics API and the pods' last lines.

The metrics API tells one measure a worker, so a trend is seen only by who asks again (a watch). What ranks
compute is known for each worker together; the disk of a node is not seen at all.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from mpijob.backends.bounded_dict import BoundedDict
from mpijob.backends.kubernetes.client.api import Api
from mpijob.backends.kubernetes.client.api_errors import translated
from mpijob.backends.kubernetes.logs import pod_logs
from mpijob.backends.kubernetes.metrics import pod_usage
from mpijob.backends.kubernetes.status.job_reader import JobReader
from mpijob.errors import Finding
from mpijob.model import JobRef, JobState, LogLine, LogQuery, Mark, Phase, Sample
from mpijob.model.status.records import PROGRAM
from mpijob.observation.health import health_sample, warnings

_MOST_SAMPLES = 4000
_MOST_JOBS = 100
_LAST_LINES = 5000
_LAST_SECONDS = 1800.0


class JobWarnings:
    """Judges running jobs again and again; what was measured before is kept, so that a watch sees trends."""

    def __init__(self, api: Api, eye: JobReader, quiet_seconds: float) -> None:
        self._api, self._reader, self._quiet_seconds = api, eye, quiet_seconds
        self._measured = BoundedDict[JobRef, list[Sample]](_MOST_JOBS)

    def of(self, ref: JobRef) -> tuple[Finding, ...]:
        """Return what is worrying about a job now."""
        look = self._reader.read(ref)
        if look.state.phase is not Phase.RUNNING:
            return ()
        past = self._measured.get(look.state.ref, [])
        self._measured[look.state.ref] = past
        with translated(f"read the usage of {ref.name}"):
            past += pod_usage.samples(self._api, look.found, self._reader.served)
            lines = last_lines(self._api, self._reader.log_sources(look.found), time.time())
        del past[:-_MOST_SAMPLES]
        return judged(look.state, past, lines, self._quiet_seconds, time.time())


def last_lines(api: Api, voices: tuple[pod_logs.PodLogSource, ...], now: float) -> tuple[LogLine, ...]:
    """Return what was said of late by the job itself."""
    query = LogQuery(roles=PROGRAM, since=now - _LAST_SECONDS, tail=_LAST_LINES)
    found = pod_logs.stored(api, voices, query, recent=True)
    return tuple(line for line in found if Mark.GAP not in line.marks)


def judged(
    state: JobState, samples: Sequence[Sample], lines: Sequence[LogLine], quiet_seconds: float, now: float
) -> tuple[Finding, ...]:
    """Return the warnings that hold now; what was measured for a shorter time than it takes says nothing yet."""
    if quiet_seconds <= 0:
        return ()
    mine = [line for line in lines if line.attempt == state.attempt]
    known = [sample for sample in samples if sample.attempt == state.attempt]
    long = bool(known) and known[-1].time - known[0].time >= quiet_seconds
    seen = health_sample.HealthSample(
        now=now,
        state=state,
        quiet_seconds=quiet_seconds,
        samples=tuple(known),
        talks=health_sample.talks_of(mine),
        steps=health_sample.steps_of(mine),
        loads=health_sample.loads_of(known, state, now - quiet_seconds) if long else (),
        was_busy=any(sample.cpu_cores > health_sample.BUSY_CORES for sample in known),
        retries=max(0, state.attempt - 1) if state.attempts_allowed > 1 else 0,
    )
    return warnings.judge(seen)
