"""Warnings for running jobs that no user watches: memory that runs out, silent and slow ranks.

The memory of all jobs is measured with one request to the metrics API, if the cluster has one. Log lines are
read when a job is reconciled, at most twice in the time that a rank may be silent.
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
# Samples of each pod: enough for a trend.
_MEASURES = 12
# Published from the job's own events already.
_BY_EVENTS = "RESTARTED"
_Pod = tuple[str, str]


class _Worker(NamedTuple):
    """The pod of a worker: its memory limit and the last samples."""

    number: int
    limit_bytes: int
    samples: deque[Sample]


class _Running(NamedTuple):
    """The workers of a job's current attempt, by their pods."""

    attempt: int
    workers: dict[_Pod, _Worker]


class EarlyWarnings:
    """Checks running jobs; `quiet_seconds` is how long a rank may be silent, 0 checks nothing."""

    def __init__(self, api: Api, reader: JobReader, namespace: str, quiet_seconds: float) -> None:
        self._api, self._reader, self._namespace = api, reader, namespace
        self.quiet_seconds = quiet_seconds
        # Several jobs are reconciled at once by threads: values are replaced, never changed in place.
        self._running: dict[JobRef, _Running] = {}
        self._found: dict[JobRef, tuple[float, tuple[Finding, ...]]] = {}
        self._measured = -_MEASURE_SECONDS

    def forget(self, ref: JobRef) -> None:
        self._found.pop(ref, None)
        self._running.pop(ref, None)

    def measure(self) -> set[JobRef]:
        """Measure all workers if it is time; return the jobs in which one uses more than half of its memory."""
        now = time.monotonic()
        due = now - self._measured >= _MEASURE_SECONDS and pod_usage.METRICS_API in self._reader.served
        if not self._running or not due:
            return set()
        self._measured, path = now, pod_usage.POD_METRICS.path(self._namespace)
        listed = self._api.list(path, labels=well_known.UID_LABEL).items
        measured = {_pod(document): document for document in listed}
        return {ref for ref, running in [*self._running.items()] if _add(running, measured)}

    def of(self, snapshot: JobSnapshot) -> tuple[Finding, ...]:
        """Return the warnings for a running job."""
        state, now = snapshot.state, self._api.now()
        if state.phase is not Phase.RUNNING or self.quiet_seconds <= 0:
            self.forget(state.ref)
            return ()
        self._note_workers(snapshot)
        asked, found = self._found.get(state.ref, (state.running or now, ()))
        if now - asked >= self.quiet_seconds / 2:
            found = self._check(snapshot, now)
            self._found[state.ref] = now, found
        return found

    def _note_workers(self, snapshot: JobSnapshot) -> None:
        state, pods = snapshot.state, workers_of(snapshot.seen.pods)
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

    def _check(self, snapshot: JobSnapshot, now: float) -> tuple[Finding, ...]:
        try:
            lines = job_warnings.last_lines(self._api, self._reader.log_sources(snapshot.found), now)
        except ApiError:
            # The kubelet does not respond; the next snapshot reads again.
            lines = ()
        workers = self._running[snapshot.state.ref].workers.values()
        samples = sorted(
            (sample for worker in workers for sample in worker.samples), key=lambda sample: sample.time
        )
        found = job_warnings.check(snapshot.state, samples, lines, self.quiet_seconds, now)
        return tuple(finding for finding in found if finding.code != _BY_EVENTS)


def _add(job: _Running, measured: Mapping[_Pod, Document]) -> bool:
    """Store the samples of a job's workers; return whether one uses more than half of its memory."""
    near = False
    for pod, worker in job.workers.items():
        if pod in measured:
            sample = pod_usage.measured_sample(measured[pod], worker.number, job.attempt)
            worker.samples.append(sample)
            near |= 0 < worker.limit_bytes * exhaustion.HALF_SHARE <= sample.memory_bytes
    return near


def _pod(document: Mapping[str, Any]) -> _Pod:
    return document["metadata"]["namespace"], document["metadata"]["name"]
