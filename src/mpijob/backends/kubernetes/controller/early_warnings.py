"""Warnings of running jobs that nobody watches: memory that runs out, silent and slow ranks.

Memory is measured for all jobs by one request of the metrics API, where the cluster has one. Lines are read when a
job is looked at, at most once in half the time that a rank may be silent.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from mpijob.backends.kubernetes.client.api import Api, ApiError
from mpijob.backends.kubernetes.logs.pod_logs import workers_of
from mpijob.backends.kubernetes.metrics import pod_usage
from mpijob.backends.kubernetes.status import job_warnings
from mpijob.backends.kubernetes.status.job_reader import JobReader, JobSnapshot
from mpijob.errors import Finding
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.model import JobRef, Phase, Sample
from mpijob.observation.health import exhaustion

_MEASURE_SECONDS = 30.0
_MEASURES = 12  # of each pod: enough for a trend
_BY_EVENTS = "RESTARTED"  # the job's own events tell it
_Pod = tuple[str, str]


class _Worker(NamedTuple):
    """A worker's pod: how much memory it may use, and what it used."""

    number: int
    limit_bytes: int
    samples: deque[Sample]


class _Running(NamedTuple):
    """The workers of a job's present attempt, by their pods."""

    attempt: int
    workers: dict[_Pod, _Worker]


class EarlyWarnings:
    """Judges running jobs while nobody asks; `quiet_seconds` is how long a rank may be silent, 0 judges nothing."""

    def __init__(self, api: Api, reader: JobReader, namespace: str, quiet_seconds: float) -> None:
        self._api, self._reader, self._namespace = api, reader, namespace
        self.quiet_seconds = quiet_seconds
        self._running: dict[
            JobRef, _Running
        ] = {}  # looks of several jobs go on at once: values are exchanged
        self._found: dict[JobRef, tuple[float, tuple[Finding, ...]]] = {}
        self._measured = -_MEASURE_SECONDS

    def forget(self, ref: JobRef) -> None:
        """Drop what is known of a job."""
        self._found.pop(ref, None)
        self._running.pop(ref, None)

    def measure(self) -> set[JobRef]:
        """Measure the memory of all workers when it is time; return the jobs of which one uses more than half."""
        now = time.monotonic()
        due = now - self._measured >= _MEASURE_SECONDS and pod_usage.METRICS_API in self._reader.served
        if not self._running or not due:
            return set()
        self._measured, path = now, pod_usage.POD_METRICS.path(self._namespace)
        listed = self._api.list(path, labels=well_known.UID_LABEL).items
        measured = {_pod(document): document for document in listed}
        return {ref for ref, one in [*self._running.items()] if _add(one, measured)}

    def of(self, look: JobSnapshot) -> tuple[Finding, ...]:
        """Return what is worrying about a job that runs."""
        state, now = look.state, self._api.now()
        if state.phase is not Phase.RUNNING or self.quiet_seconds <= 0:
            self.forget(state.ref)
            return ()
        self._note_workers(look)
        asked, found = self._found.get(state.ref, (state.running or now, ()))
        if now - asked >= self.quiet_seconds / 2:
            found = self._judged(look, now)
            self._found[state.ref] = now, found
        return found

    def _note_workers(self, look: JobSnapshot) -> None:
        state, pods = look.state, workers_of(look.seen.pods)
        before = self._running.get(state.ref)
        known = before.workers if before is not None and before.attempt == state.attempt else {}
        self._running[state.ref] = _Running(
            state.attempt,
            {
                key: _Worker(
                    worker.index,
                    worker.memory_limit_bytes or 0,
                    known[key].samples if key in known else deque(maxlen=_MEASURES),
                )
                for worker in state.workers
                if worker.index in pods and (key := _pod(pods[worker.index]))
            },
        )

    def _judged(self, look: JobSnapshot, now: float) -> tuple[Finding, ...]:
        try:
            lines = job_warnings.last_lines(self._api, self._reader.voices(look.found), now)
        except ApiError:
            lines = ()  # the kubelet does not answer: the next look asks again
        workers = self._running[look.state.ref].workers.values()
        samples = sorted(
            (sample for one in workers for sample in one.samples), key=lambda sample: sample.time
        )
        found = job_warnings.judged(look.state, samples, lines, self.quiet_seconds, now)
        return tuple(one for one in found if one.code != _BY_EVENTS)


def _add(job: _Running, measured: Mapping[_Pod, Document]) -> bool:
    """Keep what was measured of a job's workers; return whether one uses more than half of its memory."""
    near = False
    for pod, worker in job.workers.items():
        if pod in measured:
            sample = pod_usage.measured_sample(measured[pod], worker.number, job.attempt)
            worker.samples.append(sample)
            near |= 0 < worker.limit_bytes * exhaustion.HALF_SHARE <= sample.memory_bytes
    return near


def _pod(document: Mapping[str, Any]) -> _Pod:
    return document["metadata"]["namespace"], document["metadata"]["name"]
