"""The logs of a job's pods while it runs: what was said before, then each line as it comes.

Each pod is read in a thread of its own and the lines are put in order by `observation/logs/live_merge`. A stream that
breaks is taken up again where it stopped, by the time of its last line and the number of lines of that time;
where the kubelet has rotated the log meanwhile, a line says that something may be missing.
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

_LOOK_SECONDS = 0.5
_LAST_TRIES_SECONDS = 10.0  # how long a log that cannot be read now is asked for after the job's end
_MOST_WAITING = (
    50_000  # lines that were read and not yet shown; whoever reads faster than we show has to wait
)

Look = Callable[[], tuple[Sequence[PodLogSource], bool]]


class Following:
    """Reads the logs of all pods of a job while it runs, each in a thread; iterate over `lines`."""

    def __init__(self, api: Api, query: LogQuery) -> None:
        self._api = api
        self._query = query
        self._lines: queue.Queue[tuple[LogLine, str]] = queue.Queue(_MOST_WAITING)
        self._looks: queue.SimpleQueue[tuple[Sequence[PodLogSource], bool] | Exception] = queue.SimpleQueue()
        self._readers: dict[tuple[str, int], threading.Thread] = {}
        self._places: dict[int, dict[int, int]] = {}
        self._streams: set[Any] = set()
        self._closed = threading.Event()
        self._ended: float | None = None  # when the job was found to be over
        self._refusal: ApiError | None = None
        self._patience = OutageTolerance()

    def lines(self, look: Look) -> Iterator[LogLine]:
        """Yield the wanted lines until `look` says that the job is over and all is said.

        `look` gives the pods that have started, and whether the job has ended.
        """
        wanted = pipeline.LogPipeline(self._query)
        found, over = self._look(look)
        while found is None:
            found, over = self._look(look)
        known = pod_logs.positions(found, self._query, self._places)
        past = live_merge.merged(pod_logs.begun([self._past(position) for position in known]))
        yield from wanted.history(past, self._query.tail)
        if over:
            yield from wanted.live([line for one in known for line in one.reader.flush()], None)
            return
        for position in known:
            self._follow(position)
        yield from self._live(look, wanted)

    def _past(self, position: Position) -> Iterator[LogLine]:
        """Yield what a pod has said; where its stream breaks, following it goes on."""
        try:
            yield from pod_logs.so_far(self._api, position)
        except ApiError as error:
            if not error.passing:
                raise

    def _live(self, look: Look, wanted: pipeline.LogPipeline) -> Iterator[LogLine]:
        merger, over = live_merge.Merger(), False
        threading.Thread(target=self._keep_looking, args=(look,), daemon=True, name="look at the job").start()
        while True:
            over = self._news() or over
            quiet = not any(thread.is_alive() for thread in self._readers.values())
            self._take(merger)
            said_all = over and quiet
            now_ns = int(self._api.now() * 1e9)
            ready = merger.drain() if said_all else merger.ready(now_ns)
            yield from wanted.live(ready, None if said_all else now_ns)
            if said_all and self._lines.empty():
                self._tell_refusal()
                return

    def _keep_looking(self, look: Look) -> None:
        """Look at the job now and then, beside the lines: a look asks several questions, and no line waits for it."""
        over = False
        while not over and not self._closed.wait(_LOOK_SECONDS):
            try:
                found, over = self._look(look)
            except Exception as error:  # whoever reads the lines is told
                self._looks.put(error)
                return
            self._looks.put((found or (), over))

    def _news(self) -> bool:
        """Take what was seen of the job meanwhile; return whether it is over."""
        over = False
        while not self._looks.empty():
            seen = self._looks.get()
            if isinstance(seen, Exception):
                raise seen
            found, over = seen
            self._meet(found)
        return over

    def _look(self, look: Look) -> tuple[Sequence[PodLogSource] | None, bool]:
        """Return the pods that have started and whether the job is over; no pods while nobody answers."""
        self._tell_refusal()
        try:
            found, over = look()
        except BackendError as error:
            self._closed.wait(self._patience.tolerate(error))
            return None, False
        self._patience.reset()
        self._ended = time.monotonic() if over else None
        return found, over

    def _tell_refusal(self) -> None:
        if self._refusal is not None:
            raise self._refusal

    def _meet(self, found: Sequence[PodLogSource]) -> None:
        fresh = [voice for voice in found if (voice.pod, voice.attempt) not in self._readers]
        for position in pod_logs.positions(fresh, self._query, self._places):
            self._follow(position)

    def _take(self, merger: live_merge.Merger) -> None:
        """Take what has arrived, waiting a little for the first line."""
        cancellable_sleep.raise_if_cancelled()
        try:
            merger.push(*self._lines.get(timeout=0.05))
            for _ in range(_MOST_WAITING):
                merger.push(*self._lines.get_nowait())
        except queue.Empty:
            return

    def _follow(self, position: Position) -> None:
        voice = position.voice
        name = f"log of {voice.pod}"
        thread = threading.Thread(target=self._read, args=(position,), daemon=True, name=name)
        self._readers[voice.pod, voice.attempt] = thread
        thread.start()

    def _read(self, position: Position) -> None:
        """Read one pod's log to its end, taking it up again where a stream broke."""
        while not (position.ended or self._closed.is_set()):
            try:
                position.ended = self._stream(position) and not self._goes_on(position.voice)
            except ApiError as error:
                position.ended = self._is_final(error)
            if not position.ended:
                self._closed.wait(_LOOK_SECONDS)
        for line in position.reader.flush():
            self._put(line, position.voice.pod)

    def _goes_on(self, voice: PodLogSource) -> bool:
        """Whether a log that ended is a running container's: a kubelet or an API server was restarted."""
        pod = self._api.find(resources.POD.path(voice.namespace, voice.pod))
        return pod is not None and "running" in pod_logs.state_of(pod)

    def _is_final(self, error: ApiError) -> bool:
        """Whether there is no log to be had: the pod is gone, or it may not be read; anything else is asked again."""
        if error.status in (401, 403):
            self._refusal = error
        late = self._ended is not None and time.monotonic() - self._ended > _LAST_TRIES_SECONDS
        return late or not error.passing

    def _stream(self, position: Position) -> bool:
        """Return whether the log ended; else its stream broke."""
        voice = position.voice
        stream = self._api.lines(
            voice.path,
            container=voice.container,
            timestamps="true",
            follow="true",
            sinceTime=position.last.decode(),
        )
        self._streams.add(stream)
        try:
            for line in position.lines(stream):
                self._put(line, voice.pod)
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
        """End every stream."""
        self._closed.set()
        for stream in [*self._streams]:
            stream.close()
