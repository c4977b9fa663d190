"""The logs of a job's pods as one stream of lines with their sources.

The ranks' output comes through mpirun into the launcher's log (`formats/launch/rank_output` separates it);
the workers' logs are those of sshd. Following a running job, and continuing broken streams, is done by
`log_follower`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any

import msgspec

from mpijob.backends.kubernetes.client import concurrent, resources
from mpijob.backends.kubernetes.client.api import Api, ApiError
from mpijob.backends.kubernetes.status.derive_state import Document, worker_index
from mpijob.formats.kubernetes import pod_template as pod_words
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.formats.launch import mpi_profile
from mpijob.formats.launch.rank_output import Output, RankLine, Report
from mpijob.model import Family, LogLine, LogQuery, Mark, Role
from mpijob.observation.logs import cri, live_merge, pipeline

# 400: the container has not started; 404: the pod was deleted.
_GONE = (400, 404)


class PodLogSource(msgspec.Struct, frozen=True):
    """A pod whose log is read, its role in the job, and how its lines are tagged."""

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
        """The API path of the log."""
        return resources.POD.path(self.namespace, self.pod, "log")


def log_sources(
    pods: Sequence[Document],
    *,
    attempt: int,
    family: Family,
    tagged: bool,
    index_of: Callable[[Document], int],
) -> list[PodLogSource]:
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
            PodLogSource(metadata["namespace"], metadata["name"], main, role, worker, attempt, family, tagged)
        )
    return found


def role_of(pod: Mapping[str, Any]) -> Role:
    """Return a pod's role, from our own label or from the engine's."""
    labels = pod["metadata"].get("labels") or {}
    ours = labels.get(well_known.ROLE_LABEL)
    if ours:
        return Role(ours)
    engine = labels.get("jobset.sigs.k8s.io/replicatedjob-name") or labels.get(
        "training.kubeflow.org/job-role"
    )
    return Role.LAUNCHER if engine == "launcher" else Role.WORKER


def launcher_of(pods: Iterable[Document]) -> Document | None:
    """Return the launcher's pod; the newest, since one from before a suspension may still be terminating."""
    return max((pod for pod in pods if role_of(pod) is Role.LAUNCHER), key=_age, default=None)


def workers_of(pods: Iterable[Document]) -> dict[int, Document]:
    """Return the pod of each worker by its index; the newest of each, like `launcher_of`."""
    workers = [pod for pod in pods if role_of(pod) is Role.WORKER]
    return {worker_index(pod): pod for pod in sorted(workers, key=_age)}


def _age(pod: Document) -> tuple[str, bool]:
    # Times have whole seconds; of two pods of one second, the one that is not being deleted is the newer.
    metadata = pod["metadata"]
    return str(metadata.get("creationTimestamp") or ""), not metadata.get("deletionTimestamp")


def _started(pod: Mapping[str, Any]) -> bool:
    return not {"running", "terminated"}.isdisjoint(state_of(pod))


def state_of(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the state of a pod's main container, {} while it has none."""
    main = pod_words.container_of(pod["spec"])["name"]
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        if status["name"] == main:
            return status.get("state") or {}
    return {}


StoredLines = Callable[[PodLogSource], Iterator[bytes]]


class Reader:
    """Parses the timestamped lines of a pod's log into lines of the job."""

    def __init__(self, source: PodLogSource, worker_of: dict[int, int]) -> None:
        self._voice = source
        self._worker_of = worker_of
        self._output = Output(source.family, tagged=source.tagged)
        self._moment = 0

    def read(self, raw: bytes) -> Iterator[LogLine]:
        """Yield the lines in one line of the log; reports of our own launcher are used, not yielded."""
        stamp, _, text = raw.rstrip(b"\n").partition(b" ")
        self._moment = cri.nanoseconds(stamp)
        if self._voice.role is not Role.LAUNCHER:
            if mpi_profile.is_ours(text):
                return
            yield LogLine(
                self._moment, text, self._voice.role, "stderr", self._voice.worker, None, self._voice.attempt
            )
            return
        for said in self._output.read(text):
            if isinstance(said, Report):
                self._use_report(said)
            else:
                yield self._line(said)

    def gap(self, stamp: bytes) -> LogLine:
        """Return the line that says that output up to this time may be missing."""
        until = cri.nanoseconds(stamp)
        seconds = (until - self._moment) / 1e9
        text = (
            f"mpijob: the log stream of pod {self._voice.pod} broke and its log was rotated meanwhile; "
            f"its output of {seconds:.3g} s may be missing here"
        )
        return self._notice(self._moment, text)

    def _notice(self, moment: int, text: str) -> LogLine:
        source = self._voice
        return LogLine(moment, text.encode(), source.role, "stderr", source.worker, None, source.attempt,
                       marks=(Mark.GAP,))  # fmt: skip

    def unread(self, error: ApiError, now_ns: int) -> LogLine:
        """Return the line that says that the log cannot be read now."""
        text = f"mpijob: the log of pod {self._voice.pod} cannot be read: {error.message}"
        return self._notice(max(self._moment, now_ns), text)

    def flush(self) -> Iterator[LogLine]:
        """Yield the unterminated lines at the end of the log."""
        return (self._line(said) for said in self._output.rest())

    def _line(self, said: RankLine) -> LogLine:
        role = Role.LAUNCHER if said.rank is None else Role.RANK
        worker = None if said.rank is None else self._worker_of.get(said.rank)
        return LogLine(self._moment, said.text, role, said.stream, worker, said.rank, self._voice.attempt,
                       step=said.step)  # fmt: skip

    def _use_report(self, report: Report) -> None:
        rank = report.number("rank")
        index = report.words.get("host", "").partition(".")[0].rpartition("-")[2]
        if report.kind == "census" and rank is not None and index.isdecimal():
            self._worker_of[rank] = int(index)


class Position:
    """How far the log of a pod was read: the time of the last line, and how many lines had that time."""

    def __init__(self, source: PodLogSource, worker_of: dict[int, int]) -> None:
        self.source = source
        self.reader = Reader(source, worker_of)
        self.ended = False
        self.last = b""
        self._last_ns = 0
        self._same = 0

    def lines(self, stream: Iterator[bytes]) -> Iterator[LogLine]:
        """Yield the new lines of a stream that begins at or before the last line."""
        # sinceTime selects whole seconds or the exact time, by version; several lines can have one time, so they are
        # counted. A stream without the last line begins after a rotation.
        known_ns, skip = self._last_ns, self._same
        met = not self.last
        for raw in cri.stamped(stream):
            stamp = raw.partition(b" ")[0]
            moment = cri.nanoseconds(stamp)
            if moment < known_ns:
                continue
            if moment == known_ns and skip:
                skip, met = skip - 1, True
                continue
            if not met and moment > known_ns:
                yield self.reader.gap(stamp)
            met = True
            self._advance(stamp, moment)
            yield from self.reader.read(raw)

    def _advance(self, stamp: bytes, moment: int) -> None:
        self._same = self._same + 1 if moment == self._last_ns else 1
        self.last, self._last_ns = stamp, moment


def positions(
    found: Sequence[PodLogSource], query: LogQuery, places: dict[int, dict[int, int]]
) -> list[Position]:
    """Return the beginnings of logs that can have selected lines; `places` is rank → worker, by attempt."""
    wanted = [source for source in found if is_wanted(source, query)]
    return [Position(source, places.setdefault(source.attempt, {})) for source in wanted]


def stored(
    api: Api,
    found: Sequence[PodLogSource],
    query: LogQuery,
    kept: StoredLines | None = None,
    *,
    recent: bool = False,
) -> Iterator[LogLine]:
    """Yield the selected lines so far; of deleted pods those of `kept`.

    `recent` reads nothing from before the query's time, so that lines have no worker.
    """
    since = cri.stamp(int((query.since or 0.0) * 1e9)).decode() if recent else ""
    streams = start_all([_whole(api, position, kept, since) for position in positions(found, query, {})])
    return pipeline.select(live_merge.merged(streams), query)


def start_all(streams: Sequence[Iterator[LogLine]]) -> list[Iterator[LogLine]]:
    """Return the streams after their first lines were requested, several at once."""
    results = concurrent.together({str(n): partial(_first, stream) for n, stream in enumerate(streams)})
    for result in results.values():
        if result.error is not None:
            raise result.error
    return [chain(result.value, stream) for result, stream in zip(results.values(), streams, strict=True)]


def _first(stream: Iterator[LogLine]) -> list[LogLine]:
    return [*islice(stream, 1)]


def is_wanted(source: PodLogSource, query: LogQuery) -> bool:
    """Return whether a pod can have selected lines."""
    if query.attempt is not None and source.attempt != query.attempt:
        return False
    if source.role is Role.LAUNCHER:
        return not query.roles or bool({Role.LAUNCHER, Role.RANK} & set(query.roles))
    return not query.ranks and (not query.roles or Role.WORKER in query.roles)


def _whole(api: Api, position: Position, kept: StoredLines | None, since: str) -> Iterator[LogLine]:
    try:
        yield from lines_so_far(api, position, kept, since)
    except ApiError as error:
        if error.status < 500:
            raise
        # One unreachable node must not hide the lines of the other pods.
        yield position.reader.unread(error, int(api.now() * 1e9))
    yield from position.reader.flush()


def lines_so_far(
    api: Api, position: Position, kept: StoredLines | None = None, since: str = ""
) -> Iterator[LogLine]:
    """Yield the lines of a pod until now, from `since` on."""
    source = position.source
    try:
        stream = api.lines(source.path, container=source.container, timestamps="true", sinceTime=since)
    except ApiError as error:
        if error.status not in _GONE:
            raise
        if kept is not None:
            yield from position.lines(kept(source))
        return
    try:
        yield from position.lines(stream)
    finally:
        stream.close()
