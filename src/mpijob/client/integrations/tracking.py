"""Send training metrics to a tracking server while jobs run, and find links to them.

A mirror keeps no state on disk: after a restart it sends the jobs of the last day again, except those whose
run has ended at the server. `mlflow` is the protocol, `metric_sources` reads the jobs.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from mpijob.client.integrations import mlflow, tensorboard
from mpijob.errors import MpiJobError
from mpijob.model import JobKey, JobRef, JobState, Phase
from mpijob.model.status.accounts import Account, AccountQuery

if TYPE_CHECKING:
    from mpijob.observation.metrics.training import Point
    from mpijob.settings import Settings

EVERY_SECONDS = 5.0
# Lines of slower workers arrive late.
_OVERLAP_SECONDS = 30.0
_DAY = 86_400.0
_LINK_SECONDS = 2.0
_log = logging.getLogger(__name__)


class Source(Protocol):
    """The source of jobs and their metrics."""

    def going(self) -> Iterable[JobState]:
        """Return the unfinished jobs."""

    def ended(self, query: AccountQuery) -> Iterable[Account]:
        """Return the accounts that match."""

    def state(self, ref: JobRef) -> JobState | None:
        """Return the state of an existing or deleted job, None for an unknown one."""

    def points(self, ref: JobRef, since: float | None) -> Iterable[Point]:
        """Return the metrics of a training."""


class MetricMirror:
    """Sends metrics of jobs; each value once in the life of this process."""

    def __init__(self, source: Source, server: mlflow.Server, clock: Callable[[], float] = time.time) -> None:
        self._source, self._server, self._clock = source, server, clock
        self._since = clock() - _DAY
        self._sent: dict[JobKey, _Sent] = {}
        self._done: set[JobKey] = set()

    def send_new(self) -> None:
        """Send the new values of all jobs; errors are logged and tried again in the next round."""
        now = self._clock()
        finals = tuple(phase.value for phase in Phase if phase.final)
        query = AccountQuery(since=self._since, phases=finals, by_end=True, limit=1000)
        refs = [state.ref for state in self._source.going() if state.started]
        refs += [one.ref for one in self._source.ended(query) if one.ref.key not in self._done]
        failed = False
        for ref in refs:
            try:
                self.send_job(ref)
            except MpiJobError as error:
                failed = True
                _log.warning("%s: %s", ref, error)
        if not failed:
            self._since = max(self._since, now - _OVERLAP_SECONDS * 10)

    def send_job(self, ref: JobRef) -> JobState | None:
        """Send the new values of one job and, if it has ended, its end; return its state."""
        state = self._source.state(ref)
        if state is None or state.ref.key in self._done:
            return state
        sent = self._sent.setdefault(state.ref.key, _Sent())
        fresh = sent.fresh(self._source.points(state.ref, sent.since))
        if fresh and not sent.run:
            run = self._server.begin(state)
            sent.run = str(run["run_id"])
            # Another process has sent everything.
            if run.get("status") in ("FINISHED", "FAILED", "KILLED"):
                fresh = []
        if fresh:
            self._server.log(sent.run, mlflow.values(fresh))
            sent.keep(fresh)
        if state.phase.final:
            if sent.run:
                self._server.end(sent.run, state)
            self._done.add(state.ref.key)
            self._sent.pop(state.ref.key, None)
        return state


class _Sent:
    """What was sent of one job: a time, and the points around it."""

    def __init__(self) -> None:
        self.run = ""
        self._newest = 0.0
        self._around: set[tuple[float, int, tuple[tuple[str, str], ...]]] = set()

    @property
    def since(self) -> float | None:
        return self._newest - _OVERLAP_SECONDS if self._newest else None

    def fresh(self, points: Iterable[Point]) -> list[Point]:
        return [one for one in points if _key(one) not in self._around]

    def keep(self, points: Iterable[Point]) -> None:
        for one in points:
            self._newest = max(self._newest, one.time)
            self._around.add(_key(one))
        old = self._newest - 2 * _OVERLAP_SECONDS
        self._around = {key for key in self._around if key[0] >= old}


def _key(one: Point) -> tuple[float, int, tuple[tuple[str, str], ...]]:
    return one.time, one.rank, tuple((name, repr(value)) for name, value in one.values.items())


class Sender(threading.Thread):
    """Runs a mirror in the background until `stop`."""

    def __init__(self, mirror: MetricMirror, stop: threading.Event) -> None:
        super().__init__(name="mpijob-mlflow", daemon=True)
        self._mirror, self._stop_event = mirror, stop

    def run(self) -> None:
        while True:
            stopped = self._stop_event.wait(EVERY_SECONDS)
            try:
                self._mirror.send_new()
            except MpiJobError as error:
                _log.warning("%s", error)
            if stopped:
                return


# -- links -------------------------------------------------------------------------------------------
def links(settings: Settings, state: JobState) -> dict[str, str]:
    """Return links to a job's metrics: its run in MLflow, a TensorBoard that shows it now."""
    found = {"mlflow": _mlflow_link(settings, state), "tensorboard": tensorboard.address(settings, state.ref)}
    return {name: link for name, link in found.items() if link}


def _mlflow_link(settings: Settings, state: JobState) -> str:
    """Return the link to a run, from the cache if possible; none if the server does not respond."""
    path = tensorboard.link_file(settings, "mlflow", state.ref)
    if link := kept_link(path, settings.mlflow):
        return link
    try:
        server = mlflow.server_of(settings, _LINK_SECONDS)
        run = server.run_of(state) if server is not None else None
    except MpiJobError:
        return ""
    if server is None or run is None:
        return ""
    keep_link(path, server.link(run))
    return server.link(run)


def kept_link(path: str, server: str) -> str:
    """Return a cached link, "" if there is none or it belongs to another server."""
    with contextlib.suppress(OSError), open(path, encoding="utf-8") as file:
        link = file.read()
        return link if server and link.startswith(f"{server.rstrip('/')}/") else ""
    return ""


def keep_link(path: str, link: str) -> None:
    """Cache a link; errors are ignored."""
    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(link)
