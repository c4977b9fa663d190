"""Recording the log of one life of a pod's container, to its end, through whatever breaks on the way.

A life is a container between two restarts. Its log is followed; a stream that breaks, or a recorder that was
killed, is taken up again behind the last line that is stored: by its time stamp, and by how many lines carry
that very stamp. A clean end is believed once the container has ended, and checked by one more look at the
log. What the cluster no longer has (rotated away, gone with its pod) becomes a gap.
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
_AGAIN_SECONDS = 0.5
_LONGEST_PAUSE = 5.0
_log = logging.getLogger(__name__)


class ContainerRun(msgspec.Struct, frozen=True):
    """One life of a pod's main container."""

    voice: PodLogSource
    pod_uid: str
    restarts: int = 0

    @property
    def origin(self) -> str:
        """What tells this life from others of pods of the same name."""
        return f"{self.pod_uid}.{self.restarts}"

    def stored(self, key: JobKey) -> StoredVoice:
        """Return who this is in the record of a job."""
        voice = self.voice
        return StoredVoice(
            key=key,
            attempt=voice.attempt,
            role=voice.role,
            worker=voice.worker,
            source=voice.pod,
            origin=self.origin,
            format=LogFormat.POD,
            family=voice.family.value,
            tagged=voice.tagged,
        )


class LogCapture(threading.Thread):
    """Reads one life's log into the record; `close` may be called from any thread."""

    def __init__(self, api: Api, archive: Archive, key: JobKey, life: ContainerRun) -> None:
        super().__init__(daemon=True, name=f"record of {life.voice.pod}")
        self._api = api
        self._life = life
        self._path = life.voice.path
        self.capture = capture_of(archive, life.stored(key))
        self._profiles = ProfileNotes(archive, key, life.voice.pod, life.voice.worker)
        position = self.capture.position()
        self._stamp, self._repeats = position.stamp, position.repeats
        self._began_ns = time.time_ns()
        self._stream: Any = None
        self._closed = threading.Event()

    def close(self) -> None:
        """End listening; what was heard is kept, and the rest is heard by the next recorder."""
        self._closed.set()
        if (stream := self._stream) is not None:
            stream.close()

    def run(self) -> None:
        """Listen until the life has ended and all that it said is stored."""
        try:
            self._listen()
            self._patiently()
        except Exception:  # the outermost place of this thread
            _log.exception("stopped recording the log of %s", self._life.voice.pod)

    def _listen(self) -> None:
        pause = _AGAIN_SECONDS
        while not self._closed.is_set():
            try:
                if self._heard_to_its_end():
                    self._end()
                    return
                pause = _AGAIN_SECONDS
            except _Lost as lost:
                self._end(str(lost))
                return
            except ApiError as error:
                if error.status == 404:
                    self._end(GONE)
                    return
                pause = min(pause * 2, _LONGEST_PAUSE)
            self._closed.wait(pause)

    def _heard_to_its_end(self) -> bool:
        previous = self._is_over()
        self._read(follow=not previous, previous=previous)
        return not self._closed.is_set() and (previous or self._ended_wholly())

    # -- the life ---------------------------------------------------------------------------------
    def _is_over(self) -> bool:
        """Whether the container has restarted since, so that its log is that of the previous one."""
        pod = self._pod()
        if pod is None:
            raise _Lost(GONE)
        later = restarts_of(pod, self._life.voice.container) - self._life.restarts
        if later > 1:
            raise _Lost(RESTARTED)
        return later == 1

    def _ended_wholly(self) -> bool:
        """Whether the container has ended; then its log is looked at once more, for a server may end streams too."""
        pod = self._pod()
        if pod is None:
            return True  # its log was read to its end before it went
        later = restarts_of(pod, self._life.voice.container) - self._life.restarts
        if not later and not has_ended(pod, self._life.voice.container):
            return False
        try:
            self._read(follow=False, previous=later == 1)
        except ApiError as error:
            if error.status not in (400, 404):
                raise
        return True

    def _pod(self) -> Document | None:
        found = self._api.find(resources.POD.path(self._life.voice.namespace, self._life.voice.pod))
        return found if found is not None and found["metadata"]["uid"] == self._life.pod_uid else None

    # -- its lines --------------------------------------------------------------------------------
    def _read(self, *, follow: bool, previous: bool) -> None:
        """Take the lines behind the last one that was taken; while following, only whole ones."""
        self._stream = stream = self._api.lines(
            self._path,
            container=self._life.voice.container,
            timestamps="true",
            sinceTime=self._stamp.decode(),
            follow="true" if follow else "",
            previous="true" if previous else "",
        )
        try:
            for raw in self._behind(cri.stamped(stream)):
                if raw.endswith(b"\n"):
                    self._take(raw)
                elif not follow:
                    self._take(raw + b"\n")
        finally:
            self._stream = None
            stream.close()

    def _behind(self, lines: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the lines behind the last one that was taken, which must be there again; else some are missing."""
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

    def _take(self, raw: bytes) -> None:
        stamp = raw.partition(b" ")[0]
        self._repeats = self._repeats + 1 if stamp == self._stamp else 1
        self._stamp = stamp
        self._profiles.take(raw)
        try:
            self.capture.write(raw)
        except BackendError:
            self._patiently()

    def _patiently(self) -> None:
        """Store what is held, however long the disk takes: the node keeps what is not read yet."""
        while True:
            try:
                self.capture.flush()
                return
            except BackendError as error:
                _log.warning("%s", error)
                if self._closed.wait(_LONGEST_PAUSE):
                    return

    def _end(self, missing: str = "") -> None:
        self._patiently()
        self._profiles.write()
        if self._closed.is_set():
            return
        if missing:
            first_ns = cri.nanoseconds(self._stamp) or self._began_ns
            self.capture.add_gap(first_ns, max(first_ns, time.time_ns()), missing)
        self.capture.end()


class _Lost(Exception):
    """What is left of a life's log cannot be had any more; says why."""


def capture_of(archive: Archive, voice: StoredVoice) -> Capture:
    """Return the writer of one voice; a launcher's chunks know which ranks speak in them."""
    family = Family(voice.family)
    if voice.role is not Role.LAUNCHER or not voice.tagged:
        return Capture(archive, voice)
    return Capture(archive, voice, lambda lines: ranks_in(lines, family))


def abandon(archive: Archive, voice: StoredVoice) -> None:
    """End the record of a voice whose pod is gone, and say from where on it is missing."""
    capture = capture_of(archive, voice)
    first_ns = cri.nanoseconds(capture.position().stamp)
    now_ns = time.time_ns()
    if capture.damaged_range is not None:
        capture.add_gap(*capture.damaged_range, DAMAGED)
    capture.add_gap(first_ns or now_ns, now_ns, GONE)
    capture.end()


def restarts_of(pod: Document, container: str) -> int:
    """Return how often a container has restarted."""
    return int((_status(pod, container) or {}).get("restartCount") or 0)


def has_ended(pod: Document, container: str) -> bool:
    """Whether a container runs no more."""
    if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return True
    return "terminated" in ((_status(pod, container) or {}).get("state") or {})


def _status(pod: Document, container: str) -> Document | None:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return next((status for status in statuses if status["name"] == container), None)
