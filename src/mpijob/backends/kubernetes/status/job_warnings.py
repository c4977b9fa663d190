"""Warnings for a running cluster job, from what a client can read: the metrics API and the pods' last lines.

The metrics API has one current value for each worker, so a trend needs repeated calls (a watch). It has no
values of single ranks, and none of a node's disk.
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

_MAX_SAMPLES = 4000
_MAX_JOBS = 100
_LAST_LINES = 5000
_LAST_SECONDS = 1800.0


class JobWarnings:
    """Checks running jobs repeatedly; keeps the samples, so that a watch finds trends."""

    def __init__(self, api: Api, reader: JobReader, quiet_seconds: float) -> None:
        self._api, self._reader, self._quiet_seconds = api, reader, quiet_seconds
        self._measured = BoundedDict[JobRef, list[Sample]](_MAX_JOBS)

    def of(self, ref: JobRef) -> tuple[Finding, ...]:
        """Return the job's warnings now."""
        snapshot = self._reader.read(ref)
        if snapshot.state.phase is not Phase.RUNNING:
            return ()
        past = self._measured.get(snapshot.state.ref, [])
        self._measured[snapshot.state.ref] = past
        with translated(f"read the usage of {ref.name}"):
            past += pod_usage.samples(self._api, snapshot.found, self._reader.served)
            lines = last_lines(self._api, self._reader.log_sources(snapshot.found), time.time())
        del past[:-_MAX_SAMPLES]
        return check(snapshot.state, past, lines, self._quiet_seconds, time.time())


def last_lines(api: Api, sources: tuple[pod_logs.PodLogSource, ...], now: float) -> tuple[LogLine, ...]:
    """Return the last lines of the job's own program."""
    query = LogQuery(roles=PROGRAM, since=now - _LAST_SECONDS, tail=_LAST_LINES)
    found = pod_logs.stored(api, sources, query, recent=True)
    return tuple(line for line in found if Mark.GAP not in line.marks)


def check(
    state: JobState, samples: Sequence[Sample], lines: Sequence[LogLine], quiet_seconds: float, now: float
) -> tuple[Finding, ...]:
    """Return the current warnings."""
    if quiet_seconds <= 0:
        return ()
    current = [line for line in lines if line.attempt == state.attempt]
    known = [sample for sample in samples if sample.attempt == state.attempt]
    # Samples of a shorter time than `quiet_seconds` do not show an idle worker.
    long_enough = bool(known) and known[-1].time - known[0].time >= quiet_seconds
    seen = health_sample.HealthSample(
        now=now,
        state=state,
        quiet_seconds=quiet_seconds,
        samples=tuple(known),
        outputs=health_sample.outputs_of(current),
        steps=health_sample.steps_of(current),
        loads=health_sample.loads_of(known, state, now - quiet_seconds) if long_enough else (),
        was_busy=any(sample.cpu_cores > health_sample.BUSY_CORES for sample in known),
        retries=max(0, state.attempt - 1) if state.attempts_allowed > 1 else 0,
    )
    return warnings.find_warnings(seen)
