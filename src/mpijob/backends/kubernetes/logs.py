"""The logs of a job's pods as one stream of lines that know who said them.

Every rank speaks through mpirun into the launcher's log (`dialects.output` takes it apart again); workers'
own logs hold what their sshd says. A stream that breaks is taken up again where it stopped, by its time
stamps. Live, each pod is read in a thread of its own and the lines are put in order by `observation.merge`.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from mpijob.backends.kubernetes import kinds
from mpijob.backends.kubernetes.api import Api, ApiError
from mpijob.backends.kubernetes.states import Document
from mpijob.backends.patience import Patience
from mpijob.dialects import pods as pod_words
from mpijob.dialects import terms
from mpijob.dialects.output import Output, Report, Said
from mpijob.errors import BackendError
from mpijob.model import Family, LogLine, LogQuery, Role
from mpijob.observation import cri, filters, merge

_LOOK_SECONDS = 0.5
_LAST_TRIES_SECONDS = 10.0  # how long a log that cannot be read now is asked for after the job's end
_GONE = (400, 404)  # the container has not started, or the pod is gone


class Voice(msgspec.Struct, frozen=True):
    """One pod whose log is read: who it is in the job, and how its lines are to be understood."""

    namespace: str
    pod: str
    container: str
    role: Role
    worker: int | None
    attempt: int
    family: Family
    tagged: bool

    @property
    def path(self) -> str:
        """Where the log is."""
        return kinds.POD.path(self.namespace, self.pod, "log")


def voices(
    pods: Sequence[Document],
    *,
    attempt: int,
    family: Family,
    tagged: bool,
    index_of: Callable[[Document], int],
) -> list[Voice]:
    """Return the pods whose main container has started."""
    found = []
    for pod in pods:
        if not _started(pod):
            continue
        role = role_of(pod)
        main = pod_words.container_of(pod["spec"])["name"]
        worker = None if role is Role.LAUNCHER else index_of(pod)
        metadata = pod["metadata"]
        found.append(
            Voice(metadata["namespace"], metadata["name"], main, role, worker, attempt, family, tagged)
        )
    return found


def role_of(pod: Mapping[str, Any]) -> Role:
    """Return what a pod is in its job, by our own label or by the engine's."""
    labels = pod["metadata"].get("labels") or {}
    ours = labels.get(terms.ROLE_LABEL)
    if ours:
        return Role(ours)
    engine = labels.get("jobset.sigs.k8s.io/replicatedjob-name") or labels.get(
        "training.kubeflow.org/job-role"
    )
    return Role.LAUNCHER if engine == "launcher" else Role.WORKER


def _started(pod: Mapping[str, Any]) -> bool:
    return not {"running", "terminated"}.isdisjoint(_state(pod))


def _state(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the state of a pod's main container, empty while it has none."""
    main = pod_words.container_of(pod["spec"])["name"]
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        if status["name"] == main:
            return status.get("state") or {}
    return {}


class Reader:
    """Turns the stamped lines of one pod's log into lines of the job."""

    def __init__(self, voice: Voice, worker_of: dict[int, int]) -> None:
        self._voice = voice
        self._worker_of = worker_of
        self._output = Output(voice.family, tagged=voice.tagged)
        self._moment = 0

    def read(self, raw: bytes) -> Iterator[LogLine]:
        """Yield what one line of the pod's log holds; reports are learnt from, not shown."""
        stamp, _, text = raw.rstrip(b"\n").partition(b" ")
        self._moment = cri.nanoseconds(stamp)
        if self._voice.role is not Role.LAUNCHER:
            yield LogLine(
                self._moment, text, self._voice.role, "stderr", self._voice.worker, None, self._voice.attempt
            )
            return
        for said in self._output.read(text):
            if isinstance(said, Report):
                self._learn(said)
            else:
                yield self._line(said)

    def rest(self) -> Iterator[LogLine]:
        """Yield the lines that were begun and never ended, when the log is over."""
        return (self._line(said) for said in self._output.rest())

    def _line(self, said: Said) -> LogLine:
        role = Role.LAUNCHER if said.rank is None else Role.RANK
        worker = None if said.rank is None else self._worker_of.get(said.rank)
        return LogLine(self._moment, said.text, role, said.stream, worker, said.rank, self._voice.attempt)

    def _learn(self, report: Report) -> None:
        rank = report.number("rank")
        index = report.words.get("host", "").partition(".")[0].rpartition("-")[2]
        if report.kind == "census" and rank is not None and index.isdecimal():
            self._worker_of[rank] = int(index)


def stored(api: Api, found: Sequence[Voice], query: LogQuery) -> Iterator[LogLine]:
    """Yield the wanted lines of what was said so far."""
    streams = []
    for attempt in sorted({voice.attempt for voice in found}):
        worker_of: dict[int, int] = {}
        streams += [
            _whole(api, voice, worker_of)
            for voice in found
            if voice.attempt == attempt and _wanted(voice, query)
        ]
    return filters.select(merge.merged(streams), query)


def _wanted(voice: Voice, query: LogQuery) -> bool:
    """Leave out pods that cannot hold a wanted line."""
    if query.attempt is not None and voice.attempt != query.attempt:
        return False
    if voice.role is Role.LAUNCHER:
        return not query.roles or bool({Role.LAUNCHER, Role.RANK} & set(query.roles))
    return not query.ranks and (not query.roles or Role.WORKER in query.roles)


def _whole(api: Api, voice: Voice, worker_of: dict[int, int]) -> Iterator[LogLine]:
    reader = Reader(voice, worker_of)
    try:
        stream = api.lines(voice.path, container=voice.container, timestamps="true")
    except ApiError as error:
        if error.status in _GONE:
            return
        raise
    try:
        for raw in stream:
            yield from reader.read(raw)
        yield from reader.rest()
    finally:
        stream.close()


class Following:
    """Reads the logs of all pods of a job while it runs, each in a thread; iterate over `lines`."""

    def __init__(self, api: Api, query: LogQuery) -> None:
        self._api = api
        self._query = query
        self._lines: queue.SimpleQueue[LogLine] = queue.SimpleQueue()
        self._readers: dict[tuple[str, int], threading.Thread] = {}
        self._workers: dict[int, dict[int, int]] = {}
        self._streams: set[Any] = set()
        self._closed = threading.Event()
        self._ended: float | None = None  # when the job was found to be over
        self._refusal: ApiError | None = None
        self._patience = Patience()

    def lines(self, look: Callable[[], tuple[Sequence[Voice], bool]]) -> Iterator[LogLine]:
        """Yield the wanted lines until `look` says that the job is over and all is said.

        `look` gives the pods that have started, and whether the job has ended.
        """
        merger, wanted = merge.Merger(), filters.predicate(self._query)
        over, looked = False, 0.0
        while True:
            if not over and time.monotonic() - looked >= _LOOK_SECONDS:
                over = self._look(look)
                looked = time.monotonic()
            quiet = not any(thread.is_alive() for thread in self._readers.values())
            self._take(merger)
            ready = merger.drain() if over and quiet else merger.ready(int(self._api.now() * 1e9))
            yield from (line for line in ready if wanted(line))
            if over and quiet and self._lines.empty():
                self._tell_refusal()
                return

    def _look(self, look: Callable[[], tuple[Sequence[Voice], bool]]) -> bool:
        """Follow the pods that have started and return whether the job is over; not known while nobody answers."""
        self._tell_refusal()
        try:
            found, over = look()
        except BackendError as error:
            self._closed.wait(self._patience.bear(error))
            return False
        self._patience.answered()
        for voice in found:
            self._follow(voice)
        self._ended = time.monotonic() if over else None
        return over

    def _tell_refusal(self) -> None:
        if self._refusal is not None:
            raise self._refusal

    def _take(self, merger: merge.Merger) -> None:
        """Take what has arrived, waiting a little for the first line."""
        try:
            merger.push(self._lines.get(timeout=0.05))
            while True:
                merger.push(self._lines.get_nowait())
        except queue.Empty:
            return

    def _follow(self, voice: Voice) -> None:
        key = (voice.pod, voice.attempt)
        if key in self._readers or not _wanted(voice, self._query):
            return
        thread = threading.Thread(target=self._read, args=(voice,), daemon=True, name=f"log of {voice.pod}")
        self._readers[key] = thread
        thread.start()

    def _read(self, voice: Voice) -> None:
        """Read one pod's log to its end, taking it up again where a stream broke."""
        reader = Reader(voice, self._workers.setdefault(voice.attempt, {}))
        last, ended = b"", False
        while not (ended or self._closed.is_set()):
            try:
                last, ended = self._stream(voice, reader, last)
                ended = ended and not self._goes_on(voice)
            except ApiError as error:
                ended = self._is_final(error)
            if not ended:
                self._closed.wait(_LOOK_SECONDS)
        for line in reader.rest():
            self._lines.put(line)

    def _goes_on(self, voice: Voice) -> bool:
        """Whether a log that ended is a running container's: a kubelet or an API server was restarted."""
        pod = self._api.find(kinds.POD.path(voice.namespace, voice.pod))
        return pod is not None and "running" in _state(pod)

    def _is_final(self, error: ApiError) -> bool:
        """Whether there is no log to be had: the pod is gone, or it may not be read; anything else is asked again."""
        if error.status in (401, 403):
            self._refusal = error
        late = self._ended is not None and time.monotonic() - self._ended > _LAST_TRIES_SECONDS
        return late or not error.passing

    def _stream(self, voice: Voice, reader: Reader, last: bytes) -> tuple[bytes, bool]:
        """Return the last stamp seen and whether the log ended; lines up to `last` were said before."""
        known = last
        stream = self._api.lines(
            voice.path,
            container=voice.container,
            timestamps="true",
            follow="true",
            sinceTime=last.decode(),
        )
        self._streams.add(stream)
        try:
            for raw in stream:
                stamp = raw.partition(b" ")[0]
                if stamp <= known:
                    continue
                last = stamp
                for line in reader.read(raw):
                    self._lines.put(line)
            return last, True
        except ApiError:
            return last, False
        finally:
            self._streams.discard(stream)
            stream.close()

    def close(self) -> None:
        """End every stream."""
        self._closed.set()
        for stream in [*self._streams]:
            stream.close()
