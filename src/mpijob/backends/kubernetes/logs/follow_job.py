"""Follows jobs: their states, logs and events, until they have ended.

Nothing is written here; what a job needs done is done by `reconcile`. Lines are read by `log_follower` and
`pod_logs`, changes by `watch_jobs`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from mpijob.backends import cancellable_sleep
from mpijob.backends.kubernetes.client.api_errors import translated
from mpijob.errors import BackendError, NotFound

if TYPE_CHECKING:
    from mpijob.backends.kubernetes.client.api import Api
    from mpijob.backends.kubernetes.logs.loki_client import Loki
    from mpijob.backends.kubernetes.logs.pod_logs import PodLogSource, StoredLines
    from mpijob.backends.kubernetes.status.job_objects import Found
    from mpijob.backends.kubernetes.status.job_reader import JobReader
    from mpijob.history.archive_reader import ArchiveReader
    from mpijob.model import Event, JobRef, JobState, LogLine, LogQuery, Scope

POLL_SECONDS = 0.5


class JobFollower:
    """Follows jobs through one API client; `loki` and `past` have the lines of pods that were deleted."""

    def __init__(
        self,
        api: Api,
        reader: JobReader,
        loki: Loki | None = None,
        past: Callable[[], ArchiveReader | None] = lambda: None,
    ) -> None:
        self._api, self._reader = api, reader
        self._loki, self._past = loki, past

    def states(self, scope: Scope) -> Generator[JobState, None, None]:
        from mpijob.backends.kubernetes.status import watch_jobs

        found = watch_jobs.changes(self._api, scope, self._reader.served, self._state)
        with closing(found) as changes, translated("watch jobs"):
            yield from changes

    def lines(self, ref: JobRef, query: LogQuery) -> Generator[LogLine, None, None]:
        """Yield the merged lines of all pods, those of deleted pods from Loki.

        If all pods are deleted (by a deadline, or suspended), the lines are those that the recorder has stored.
        """
        from mpijob.backends.kubernetes.logs import log_follower, pod_logs

        try:
            found = self._reader.find(ref)
        except NotFound as error:
            yield from self._from_loki(ref, query, error)
            return
        ref = found.ref
        if not query.follow or (self._has_log_store() and self._has_ended(ref)):
            sources, kept = self._log_sources(found)
            past = None if sources else self._recorded(ref)
            if past is not None:
                self._check_may_read(ref)
            with translated(f"read the logs of {ref.name}"):
                yield from (
                    pod_logs.stored(self._api, sources, query, kept)
                    if past is None
                    else past.logs(ref, query)
                )
            return
        with (
            closing(log_follower.LogFollower(self._api, query)) as follower,
            translated(f"read the logs of {ref.name}"),
        ):
            yield from follower.lines(
                lambda: (self._reader.log_sources(self._reader.find(ref)), self._has_ended(ref))
            )

    def _has_log_store(self) -> bool:
        return self._loki is not None or self._past() is not None

    def _recorded(self, ref: JobRef) -> ArchiveReader | None:
        """Return the recorder's archive if it has the job."""
        past = self._past()
        return past if past is not None and past.state(ref) is not None else None

    def _check_may_read(self, ref: JobRef) -> None:
        # The archive and Loki are read with other credentials, so the API server decides here. 403 comes before 404.
        from mpijob.backends.kubernetes.client import resources

        with translated(f"read the logs of {ref.name}"):
            self._api.find(resources.POD.path(ref.namespace, ref.name, "log"))

    def _log_sources(self, found: Found) -> tuple[Sequence[PodLogSource], StoredLines | None]:
        sources = self._reader.log_sources(found)
        if self._loki is None:
            return sources, None
        from mpijob.backends.kubernetes.logs import loki_client

        there = {source.pod for source in sources}
        gone = loki_client.of_job(self._loki, found, there, self._now_ns())
        return (*sources, *gone.spans), gone.lines

    def _from_loki(self, ref: JobRef, query: LogQuery, error: NotFound) -> Iterator[LogLine]:
        """Yield the lines that Loki has of the last job of this name; raise `error` if there are none."""
        # Loki does not know uids: with one, its lines could be those of another job of the same name.
        from mpijob.backends.kubernetes.logs import loki_client, pod_logs

        if self._loki is None or ref.uid or self._recorded(ref) is not None:
            raise error
        self._check_may_read(ref)
        with translated(f"read the logs of {ref.name}"):
            gone = loki_client.of_name(self._loki, ref, self._now_ns())
            if not gone.spans:
                raise error
            yield from pod_logs.stored(self._api, [*gone.spans], query, gone.lines)

    def _now_ns(self) -> int:
        return int(self._api.now() * 1e9)

    def events(self, ref: JobRef, *, follow: bool) -> Generator[Event, None, None]:
        """Yield the job's events in order; with `follow`, until it has ended."""
        from mpijob.backends.outage_tolerance import OutageTolerance

        yielded: set[tuple[float, str, str]] = set()
        known: dict[int, list[Event]] = {}
        patience, (timeline_of, over) = OutageTolerance(), self._reader.timeline_of(ref, known)
        while True:
            for event in timeline_of:
                key = (event.time, event.reason, event.message)
                if key not in yielded:
                    yielded.add(key)
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

    def _has_ended(self, ref: JobRef) -> bool:
        try:
            return self._state(ref).phase.final
        except NotFound:
            return True

    def _state(self, ref: JobRef) -> JobState:
        return self._reader.read(ref).state


def pause(seconds: float) -> None:
    """Sleep, at least as long as an object of the cluster takes to change."""
    cancellable_sleep.sleep(max(seconds, POLL_SECONDS))
