"""The logs of a job's pods while it runs: the lines so far, then each line as it comes.

Each pod is read by a thread, and `observation/logs/live_merge` orders the lines. A broken stream is continued
by the time of its last line and the number of lines with that time; if the kubelet has rotated the log
meanwhile, a line says that output may be missing.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mpijob.backends import cancellable_sleep
from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api import Api, ApiError
from mpijob.backends.kubernetes.logs import pod_logs
from mpijob.backends.kubernetes.logs.pod_logs import PodLogSource, Position
from mpijob.backends.outage_tolerance import OutageTolerance
from mpijob.errors import BackendError
from mpijob.model import LogLine, LogQuery
from mpijob.observation.logs import live_merge, pipeline

_POLL_SECONDS = 0.5
# How long after the job's end a log that cannot be read is requested again.
_LAST_TRIES_SECONDS = 10.0
# Lines that were read and not yet yielded. Readers block on a full queue, and then the kubelet does.
_MAX_QUEUED = 50_000

ReadJob = Callable[[], tuple[Sequence[PodLogSource], bool]]


class LogFollower:
    """Reads the logs of all pods of a running job, each in a thread; iterate over `lines`, then `close`."""

    def __init__(self, api: Api, query: LogQuery) -> None:
        self._api = api
        self._query = query
        self._lines: queue.Queue[tuple[LogLine, str]] = queue.Queue(_MAX_QUEUED)
        self._polled: queue.SimpleQueue[tuple[Sequence[PodLogSource], bool] | Exception] = queue.SimpleQueue()
        self._readers: dict[tuple[str, int], threading.Thread] = {}
        self._places: dict[int, dict[int, int]] = {}
        self._streams: set[Any] = set()
        self._closed = threading.Event()
        # When the job was found to have ended.
        self._ended: float | None = None
        self._refusal: ApiError | None = None
        self._tolerance = OutageTolerance()

    def lines(self, read_job: ReadJob) -> Iterator[LogLine]:
        """Yield the selected lines until the job has ended and all were read.

        `read_job` returns the pods that have started, and whether the job has ended.
        """
        selected = pipeline.LogPipeline(self._query)
        found, over = self._read_job(read_job)
        while found is None:
            found, over = self._read_job(read_job)
        known = pod_logs.positions(found, self._query, self._places)
        past = live_merge.merged(pod_logs.start_all([self._lines_so_far(position) for position in known]))
        yield from selected.history(past, self._query.tail)
        if over:
            yield from selected.live([line for item in known for line in item.reader.flush()], None)
            return
        for position in known:
            self._follow(position)
        yield from self._live(read_job, selected)

    def _lines_so_far(self, position: Position) -> Iterator[LogLine]:
        # A stream that breaks here is continued when the pod is followed.
        try:
            yield from pod_logs.lines_so_far(self._api, position)
        except ApiError as error:
            if not error.passing:
                raise

    def _live(self, read_job: ReadJob, selected: pipeline.LogPipeline) -> Iterator[LogLine]:
        merger, over = live_merge.Merger(), False
        threading.Thread(target=self._poll_job, args=(read_job,), daemon=True, name="poll of the job").start()
        while True:
            over = self._take_polled() or over
            all_read = not any(thread.is_alive() for thread in self._readers.values())
            self._take_lines(merger)
            complete = over and all_read
            now_ns = int(self._api.now() * 1e9)
            ready = merger.drain() if complete else merger.ready(now_ns)
            yield from selected.live(ready, None if complete else now_ns)
            if complete and self._lines.empty():
                self._raise_refusal()
                return

    def _poll_job(self, read_job: ReadJob) -> None:
        # In a thread: reading the job takes several requests, and lines must not wait for them.
        over = False
        while not over and not self._closed.wait(_POLL_SECONDS):
            try:
                found, over = self._read_job(read_job)
            except Exception as error:
                # Raised by `_take_polled`, in the caller's thread.
                self._polled.put(error)
                return
            self._polled.put((found or (), over))

    def _take_polled(self) -> bool:
        """Follow new pods; return whether the job has ended."""
        over = False
        while not self._polled.empty():
            polled = self._polled.get()
            if isinstance(polled, Exception):
                raise polled
            found, over = polled
            self._follow_new(found)
        return over

    def _read_job(self, read_job: ReadJob) -> tuple[Sequence[PodLogSource] | None, bool]:
        """Return the started pods and whether the job has ended; None while the cluster does not respond."""
        self._raise_refusal()
        try:
            found, over = read_job()
        except BackendError as error:
            self._closed.wait(self._tolerance.tolerate(error))
            return None, False
        self._tolerance.reset()
        self._ended = time.monotonic() if over else None
        return found, over

    def _raise_refusal(self) -> None:
        if self._refusal is not None:
            raise self._refusal

    def _follow_new(self, found: Sequence[PodLogSource]) -> None:
        fresh = [source for source in found if (source.pod, source.attempt) not in self._readers]
        for position in pod_logs.positions(fresh, self._query, self._places):
            self._follow(position)

    def _take_lines(self, merger: live_merge.Merger) -> None:
        """Take the lines that have arrived, waiting a little for the first one."""
        cancellable_sleep.raise_if_cancelled()
        try:
            merger.push(*self._lines.get(timeout=0.05))
            for _ in range(_MAX_QUEUED):
                merger.push(*self._lines.get_nowait())
        except queue.Empty:
            return

    def _follow(self, position: Position) -> None:
        source = position.source
        name = f"log of {source.pod}"
        thread = threading.Thread(target=self._read, args=(position,), daemon=True, name=name)
        self._readers[source.pod, source.attempt] = thread
        thread.start()

    def _read(self, position: Position) -> None:
        while not (position.ended or self._closed.is_set()):
            try:
                position.ended = self._stream(position) and not self._is_running(position.source)
            except ApiError as error:
                position.ended = self._is_unreadable(error)
            if not position.ended:
                self._closed.wait(_POLL_SECONDS)
        for line in position.reader.flush():
            self._put(line, position.source.pod)

    def _is_running(self, source: PodLogSource) -> bool:
        # A restart of the kubelet or the API server ends the stream of a running container normally.
        pod = self._api.find(resources.POD.path(source.namespace, source.pod))
        return pod is not None and "running" in pod_logs.state_of(pod)

    def _is_unreadable(self, error: ApiError) -> bool:
        # The pod is gone, or its log may not be read. Any other error may pass.
        if error.status in (401, 403):
            self._refusal = error
        late = self._ended is not None and time.monotonic() - self._ended > _LAST_TRIES_SECONDS
        return late or not error.passing

    def _stream(self, position: Position) -> bool:
        """Return whether the log ended; False if its stream broke."""
        source = position.source
        stream = self._api.lines(
            source.path,
            container=source.container,
            timestamps="true",
            follow="true",
            sinceTime=position.last.decode(),
        )
        self._streams.add(stream)
        try:
            for line in position.lines(stream):
                self._put(line, source.pod)
            return True
        except ApiError:
            return False
        finally:
            self._streams.discard(stream)
            stream.close()

    def _put(self, line: LogLine, pod: str) -> None:
        while not self._closed.is_set():
            try:
                self._lines.put((line, pod), timeout=0.2)
            except queue.Full:
                continue
            return

    def close(self) -> None:
        """End all streams; their threads end by themselves."""
        self._closed.set()
        for stream in [*self._streams]:
            stream.close()
