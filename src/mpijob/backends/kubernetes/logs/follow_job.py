"""Staying with a job: its states, its log and its events as they come, until it has ended.

Nothing is written here: what a job needs done is the controller's (`reconcile`). Where lines come from is in
`log_follower` and `pod_logs`, where changes come from in `watch_jobs`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from mpijob.backends import cancellable_sleep
from mpijob.backends.kubernetes.client.api_errors import telling
from mpijob.errors import BackendError, NotFound

if TYPE_CHECKING:
    from mpijob.backends.kubernetes.client.api import Api
    from mpijob.backends.kubernetes.logs.loki_client import Loki
    from mpijob.backends.kubernetes.logs.pod_logs import Kept, PodLogSource
    from mpijob.backends.kubernetes.status.job_objects import Found
    from mpijob.backends.kubernetes.status.job_reader import JobReader
    from mpijob.history.archive_reader import ArchiveReader
    from mpijob.model import Event, JobRef, JobState, LogLine, LogQuery, Scope

POLL_SECONDS = 0.5


class JobFollower:
    """Stays with jobs through one API client."""

    def __init__(
        self,
        api: Api,
        eye: JobReader,
        loki: Loki | None = None,
        past: Callable[[], ArchiveReader | None] = lambda: None,
    ) -> None:
        self._api, self._reader = api, eye
        self._loki, self._past = loki, past

    def states(self, scope: Scope) -> Generator[JobState, None, None]:
        """Yield every job's state once, then each change, until closed."""
        from mpijob.backends.kubernetes.status import watch_jobs

        found = watch_jobs.changes(self._api, scope, self._reader.served, self._state)
        with closing(found) as changes, telling("watch jobs"):
            yield from changes

    def lines(self, ref: JobRef, query: LogQuery) -> Generator[LogLine, None, None]:
        """Yield the merged lines of all pods; of those that are gone, what the cluster's Loki has kept.

        Where no pod is left (a deadline or a rest takes them all away) it is what a recorder has written down.
        """
        from mpijob.backends.kubernetes.logs import log_follower, pod_logs

        try:
            found = self._reader.find(ref)
        except NotFound as error:
            yield from self._kept(ref, query, error)
            return
        ref = found.ref
        if not query.follow or (self._keeps() and self._over(ref)):
            voices, kept = self._voices(found)
            past = None if voices else self._remembered(ref)
            if past is not None:
                self._check_may_read(ref)
            with telling(f"read the logs of {ref.name}"):
                yield from (
                    pod_logs.stored(self._api, voices, query, kept) if past is None else past.logs(ref, query)
                )
            return
        with (
            closing(log_follower.Following(self._api, query)) as follower,
            telling(f"read the logs of {ref.name}"),
        ):
            yield from follower.lines(lambda: (self._reader.voices(self._reader.find(ref)), self._over(ref)))

    def _keeps(self) -> bool:
        """Whether somebody keeps the lines of pods that are gone."""
        return self._loki is not None or self._past() is not None

    def _remembered(self, ref: JobRef) -> ArchiveReader | None:
        """Return the record where it has the job."""
        past = self._past()
        return past if past is not None and past.state(ref) is not None else None

    def _check_may_read(self, ref: JobRef) -> None:
        """Raise where the API server does not let us read logs: it is asked for one, there or not."""
        from mpijob.backends.kubernetes.client import resources

        with telling(f"read the logs of {ref.name}"):
            self._api.find(resources.POD.path(ref.namespace, ref.name, "log"))

    def _voices(self, found: Found) -> tuple[Sequence[PodLogSource], Kept | None]:
        """Return the job's pods, and how those are read that are gone: from Loki, where the settings name one."""
        voices = self._reader.voices(found)
        if self._loki is None:
            return voices, None
        from mpijob.backends.kubernetes.logs import loki_client

        there = {voice.pod for voice in voices}
        gone = loki_client.of_job(self._loki, found, there, self._now_ns())
        return (*voices, *gone.spans), gone.lines

    def _kept(self, ref: JobRef, query: LogQuery, error: NotFound) -> Iterator[LogLine]:
        """Yield what Loki has kept of the last job of a name; raise the error where that is nothing.

        By its name Loki tells no job from a later one. Who may not read logs is told so by the API server first.
        """
        from mpijob.backends.kubernetes.logs import loki_client, pod_logs

        if self._loki is None or ref.uid or self._remembered(ref) is not None:
            raise error
        self._check_may_read(ref)
        with telling(f"read the logs of {ref.name}"):
            gone = loki_client.of_name(self._loki, ref, self._now_ns())
            if not gone.spans:
                raise error
            yield from pod_logs.stored(self._api, [*gone.spans], query, gone.lines)

    def _now_ns(self) -> int:
        return int(self._api.now() * 1e9)

    def events(self, ref: JobRef, *, follow: bool) -> Generator[Event, None, None]:
        """Yield what happened, in order; with follow, until the job has ended."""
        from mpijob.backends.outage_tolerance import OutageTolerance

        told: set[tuple[float, str, str]] = set()
        known: dict[int, list[Event]] = {}
        patience, (timeline_of, over) = OutageTolerance(), self._reader.timeline_of(ref, known)
        while True:
            for event in timeline_of:
                key = (event.time, event.reason, event.message)
                if key not in told:
                    told.add(key)
                    yield event
            if not follow or over:
                return
            pause(POLL_SECONDS)
            try:
                timeline_of, over = self._reader.timeline_of(ref, known)
            except BackendError as error:
                pause(patience.tolerate(error))
            else:
                patience.reset()

    def _over(self, ref: JobRef) -> bool:
        try:
            return self._state(ref).phase.final
        except NotFound:
            return True

    def _state(self, ref: JobRef) -> JobState:
        return self._reader.look(ref).state


def pause(seconds: float) -> None:
    """Let a moment pass; a cluster is not asked more often than it changes."""
    cancellable_sleep.sleep(max(seconds, POLL_SECONDS))
