"""Records the log of one run of a pod's container, to its end, through broken streams and restarts of the
recorder.

A run is the time between two restarts of a container. A stream is continued after the last stored line, by
its timestamp and the number of lines with that timestamp. A clean end of a stream counts only once the
container has ended, and after one more read. Lines that the cluster no longer has become a gap.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

import msgspec

from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api import Api, ApiError
from mpijob.backends.kubernetes.logs.pod_logs import PodLogSource
from mpijob.backends.kubernetes.recorder.mpi_profiles import ProfileNotes
from mpijob.backends.kubernetes.status.derive_state import Document
from mpijob.errors import BackendError
from mpijob.formats.launch.rank_output import ranks_in
from mpijob.history.archive import Archive
from mpijob.history.log_writer import DAMAGED, Capture
from mpijob.history.records import LogFormat
from mpijob.history.records import LogSource as StoredVoice
from mpijob.model import Family, JobKey, Role
from mpijob.observation.logs import cri

ROTATED = "the node rotated this part of the log before it could be read"
GONE = "the pod was deleted before its log was read completely"
RESTARTED = "the container had restarted more than once before this part could be read"
_RETRY_SECONDS = 0.5
_LONGEST_PAUSE = 5.0
_log = logging.getLogger(__name__)


class ContainerRun(msgspec.Struct, frozen=True):
    """One run of a pod's main container, between two restarts."""

    log_source: PodLogSource
    pod_uid: str
    restarts: int = 0

    @property
    def origin(self) -> str:
        """What distinguishes this run from others of pods with the same name."""
        return f"{self.pod_uid}.{self.restarts}"

    def stored(self, key: JobKey) -> StoredVoice:
        """Return the source of this run in a job's record."""
        log_source = self.log_source
        return StoredVoice(
            key=key,
            attempt=log_source.attempt,
            role=log_source.role,
            worker=log_source.worker,
            source=log_source.pod,
            origin=self.origin,
            format=LogFormat.POD,
            family=log_source.family.value,
            tagged=log_source.tagged,
        )


class LogCapture(threading.Thread):
    """Records the log of one run; `close` may be called from any thread."""

    def __init__(self, api: Api, archive: Archive, key: JobKey, run: ContainerRun) -> None:
        super().__init__(daemon=True, name=f"record of {run.log_source.pod}")
        self._api = api
        self._run = run
        self._path = run.log_source.path
        self.capture = capture_of(archive, run.stored(key))
        self._profiles = ProfileNotes(archive, key, run.log_source.pod, run.log_source.worker)
        position = self.capture.position()
        self._stamp, self._repeats = position.stamp, position.repeats
        self._began_ns = time.time_ns()
        self._stream: Any = None
        self._closed = threading.Event()

    def close(self) -> None:
        """Stop reading; stored lines are kept, and the next recorder continues."""
        self._closed.set()
        if (stream := self._stream) is not None:
            stream.close()

    def run(self) -> None:
        """Record until the run has ended and all its lines are stored."""
        try:
            self._record()
            self._flush_until_stored()
        except Exception:
            # The outermost place of this thread.
            _log.exception("stopped recording the log of %s", self._run.log_source.pod)

    def _record(self) -> None:
        pause = _RETRY_SECONDS
        while not self._closed.is_set():
            try:
                if self._read_to_end():
                    self._end()
                    return
                pause = _RETRY_SECONDS
            except _Lost as lost:
                self._end(str(lost))
                return
            except ApiError as error:
                if error.status == 404:
                    self._end(GONE)
                    return
                pause = min(pause * 2, _LONGEST_PAUSE)
            self._closed.wait(pause)

    def _read_to_end(self) -> bool:
        previous = self._has_restarted()
        self._read(follow=not previous, previous=previous)
        return not self._closed.is_set() and (previous or self._has_ended())

    # -- the life ---------------------------------------------------------------------------------
    def _has_restarted(self) -> bool:
        # After a restart, the kubelet has this run's log under `previous`, and after a second one no longer.
        pod = self._pod()
        if pod is None:
            raise _Lost(GONE)
        later = restarts_of(pod, self._run.log_source.container) - self._run.restarts
        if later > 1:
            raise _Lost(RESTARTED)
        return later == 1

    def _has_ended(self) -> bool:
        # A server that shuts down ends streams cleanly, too, so the log of an ended container is read once more.
        pod = self._pod()
        if pod is None:
            # Its stream ended before the pod was deleted.
            return True
        later = restarts_of(pod, self._run.log_source.container) - self._run.restarts
        if not later and not has_ended(pod, self._run.log_source.container):
            return False
        try:
            self._read(follow=False, previous=later == 1)
        except ApiError as error:
            if error.status not in (400, 404):
                raise
        return True

    def _pod(self) -> Document | None:
        found = self._api.find(resources.POD.path(self._run.log_source.namespace, self._run.log_source.pod))
        return found if found is not None and found["metadata"]["uid"] == self._run.pod_uid else None

    # -- its lines --------------------------------------------------------------------------------
    def _read(self, *, follow: bool, previous: bool) -> None:
        """Store the lines after the last stored one; while following, only complete lines."""
        self._stream = stream = self._api.lines(
            self._path,
            container=self._run.log_source.container,
            timestamps="true",
            sinceTime=self._stamp.decode(),
            follow="true" if follow else "",
            previous="true" if previous else "",
        )
        try:
            for raw in self._new_lines(cri.stamped(stream)):
                if raw.endswith(b"\n"):
                    self._store(raw)
                elif not follow:
                    self._store(raw + b"\n")
        finally:
            self._stream = None
            stream.close()

    def _new_lines(self, lines: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the lines after the last stored one; if that one is missing, a gap is recorded."""
        known, expected, last_ns = self._stamp, self._repeats, cri.nanoseconds(self._stamp)
        for raw in lines:
            stamp = raw.partition(b" ")[0]
            if known and stamp == known and expected:
                expected -= 1
            elif not known or stamp == known or cri.nanoseconds(stamp) > last_ns:
                if known and expected:
                    self.capture.add_gap(last_ns, cri.nanoseconds(stamp), ROTATED)
                yield raw
                yield from lines
                return

    def _store(self, raw: bytes) -> None:
        stamp = raw.partition(b" ")[0]
        self._repeats = self._repeats + 1 if stamp == self._stamp else 1
        self._stamp = stamp
        self._profiles.take(raw)
        try:
            self.capture.write(raw)
        except BackendError:
            self._flush_until_stored()

    def _flush_until_stored(self) -> None:
        """Write buffered lines, however long the disk is full: meanwhile the kubelet keeps the rest."""
        while True:
            try:
                self.capture.flush()
                return
            except BackendError as error:
                _log.warning("%s", error)
                if self._closed.wait(_LONGEST_PAUSE):
                    return

    def _end(self, missing: str = "") -> None:
        self._flush_until_stored()
        self._profiles.write()
        if self._closed.is_set():
            return
        if missing:
            first_ns = cri.nanoseconds(self._stamp) or self._began_ns
            self.capture.add_gap(first_ns, max(first_ns, time.time_ns()), missing)
        self.capture.end()


class _Lost(Exception):
    """The rest of a run's log no longer exists; the message is why."""


def capture_of(archive: Archive, log_source: StoredVoice) -> Capture:
    """Return the writer of a source; chunks of a launcher's log have the set of their ranks."""
    family = Family(log_source.family)
    if log_source.role is not Role.LAUNCHER or not log_source.tagged:
        return Capture(archive, log_source)
    return Capture(archive, log_source, lambda lines: ranks_in(lines, family))


def abandon(archive: Archive, log_source: StoredVoice) -> None:
    """End the record of a source whose pod is deleted, with a gap to now."""
    capture = capture_of(archive, log_source)
    first_ns = cri.nanoseconds(capture.position().stamp)
    now_ns = time.time_ns()
    if capture.damaged_range is not None:
        capture.add_gap(*capture.damaged_range, DAMAGED)
    capture.add_gap(first_ns or now_ns, now_ns, GONE)
    capture.end()


def restarts_of(pod: Document, container: str) -> int:
    return int((_status(pod, container) or {}).get("restartCount") or 0)


def has_ended(pod: Document, container: str) -> bool:
    """Return whether the container has ended for good."""
    if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return True
    return "terminated" in ((_status(pod, container) or {}).get("state") or {})


def _status(pod: Document, container: str) -> Document | None:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return next((status for status in statuses if status["name"] == container), None)
