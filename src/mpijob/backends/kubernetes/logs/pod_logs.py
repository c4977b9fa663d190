"""The logs of a job's pods as one stream of lines that know who said them.

Every rank speaks through mpirun into the launcher's log (`formats/launch/rank_output` takes it apart again); workers'
own logs hold what their sshd says. Reading them while the job runs, and taking up a stream that broke, is the
business of `log_follower`.
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

_GONE = (400, 404)  # the container has not started, or the pod is gone


class PodLogSource(msgspec.Struct, frozen=True):
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
        return resources.POD.path(self.namespace, self.pod, "log")


def voices(
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
    """Return what a pod is in its job, by our own label or by the engine's."""
    labels = pod["metadata"].get("labels") or {}
    ours = labels.get(well_known.ROLE_LABEL)
    if ours:
        return Role(ours)
    engine = labels.get("jobset.sigs.k8s.io/replicatedjob-name") or labels.get(
        "training.kubeflow.org/job-role"
    )
    return Role.LAUNCHER if engine == "launcher" else Role.WORKER


def launcher_of(pods: Iterable[Document]) -> Document | None:
    """Return the launcher's pod; when a job is resumed, the one of before may still be on its way out."""
    return max((pod for pod in pods if role_of(pod) is Role.LAUNCHER), key=_age, default=None)


def workers_of(pods: Iterable[Document]) -> dict[int, Document]:
    """Return the pod of each worker, by its index; those of before may still be on their way out."""
    workers = [pod for pod in pods if role_of(pod) is Role.WORKER]
    return {worker_index(pod): pod for pod in sorted(workers, key=_age)}


def _age(pod: Document) -> tuple[str, bool]:
    """Return what orders pods by when they were made, in one second those that stay last: they are listed by name."""
    metadata = pod["metadata"]
    return str(metadata.get("creationTimestamp") or ""), not metadata.get("deletionTimestamp")


def _started(pod: Mapping[str, Any]) -> bool:
    return not {"running", "terminated"}.isdisjoint(state_of(pod))


def state_of(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the state of a pod's main container, empty while it has none."""
    main = pod_words.container_of(pod["spec"])["name"]
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        if status["name"] == main:
            return status.get("state") or {}
    return {}


Kept = Callable[[PodLogSource], Iterator[bytes]]


class Reader:
    """Turns the stamped lines of one pod's log into lines of the job."""

    def __init__(self, voice: PodLogSource, worker_of: dict[int, int]) -> None:
        self._voice = voice
        self._worker_of = worker_of
        self._output = Output(voice.family, tagged=voice.tagged)
        self._moment = 0

    def read(self, raw: bytes) -> Iterator[LogLine]:
        """Yield what one line of the pod's log holds; reports are learnt from, not shown."""
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
                self._learn(said)
            else:
                yield self._line(said)

    def gap(self, stamp: bytes) -> LogLine:
        """Return the line that says that something may be missing here, up to the given moment."""
        until = cri.nanoseconds(stamp)
        seconds = (until - self._moment) / 1e9
        text = (
            f"mpijob: the log stream of pod {self._voice.pod} broke and its log was rotated meanwhile; "
            f"its output of {seconds:.3g} s may be missing here"
        )
        return self._told(self._moment, text)

    def _told(self, moment: int, text: str) -> LogLine:
        voice = self._voice
        return LogLine(moment, text.encode(), voice.role, "stderr", voice.worker, None, voice.attempt,
                       marks=(Mark.GAP,))  # fmt: skip

    def unread(self, error: ApiError, now_ns: int) -> LogLine:
        """Return the line that says that the log, or the rest of it, cannot be had now: its node does not answer."""
        text = f"mpijob: the log of pod {self._voice.pod} cannot be read: {error.message}"
        return self._told(max(self._moment, now_ns), text)

    def flush(self) -> Iterator[LogLine]:
        """Yield the lines that were begun and never ended, when the log is over."""
        return (self._line(said) for said in self._output.rest())

    def _line(self, said: RankLine) -> LogLine:
        role = Role.LAUNCHER if said.rank is None else Role.RANK
        worker = None if said.rank is None else self._worker_of.get(said.rank)
        return LogLine(self._moment, said.text, role, said.stream, worker, said.rank, self._voice.attempt,
                       step=said.step)  # fmt: skip

    def _learn(self, report: Report) -> None:
        rank = report.number("rank")
        index = report.words.get("host", "").partition(".")[0].rpartition("-")[2]
        if report.kind == "census" and rank is not None and index.isdecimal():
            self._worker_of[rank] = int(index)


class Position:
    """How far the log of one pod has been read: by the time of its last line, and how many lines had that time."""

    def __init__(self, voice: PodLogSource, worker_of: dict[int, int]) -> None:
        self.voice = voice
        self.reader = Reader(voice, worker_of)
        self.ended = False
        self.last = b""
        self._last_ns = 0
        self._same = 0

    def lines(self, stream: Iterator[bytes]) -> Iterator[LogLine]:
        """Yield what is new in a stream that begins at or before the last line."""
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
            self._keep(stamp, moment)
            yield from self.reader.read(raw)

    def _keep(self, stamp: bytes, moment: int) -> None:
        self._same = self._same + 1 if moment == self._last_ns else 1
        self.last, self._last_ns = stamp, moment


def positions(
    found: Sequence[PodLogSource], query: LogQuery, places: dict[int, dict[int, int]]
) -> list[Position]:
    """Return the beginnings of the logs that can hold a wanted line; `places` is rank → worker by attempt."""
    wanted = [voice for voice in found if is_wanted(voice, query)]
    return [Position(voice, places.setdefault(voice.attempt, {})) for voice in wanted]


def stored(
    api: Api,
    found: Sequence[PodLogSource],
    query: LogQuery,
    kept: Kept | None = None,
    *,
    recent: bool = False,
) -> Iterator[LogLine]:
    """Yield the wanted lines of what was said so far; of a pod that is gone, those that were kept elsewhere.

    `recent` reads nothing from before the query's moment: then no rank's worker is learnt.
    """
    since = cri.stamp(int((query.since or 0.0) * 1e9)).decode() if recent else ""
    streams = begun([_whole(api, position, kept, since) for position in positions(found, query, {})])
    return pipeline.select(live_merge.merged(streams), query)


def begun(streams: Sequence[Iterator[LogLine]]) -> list[Iterator[LogLine]]:
    """Return streams that have begun, several at once: a hundred pods, or a node that answers late, are soon read."""
    answers = concurrent.together({str(n): partial(_first, stream) for n, stream in enumerate(streams)})
    for answer in answers.values():
        if answer.error is not None:
            raise answer.error
    return [chain(answer.value, stream) for answer, stream in zip(answers.values(), streams, strict=True)]


def _first(stream: Iterator[LogLine]) -> list[LogLine]:
    return [*islice(stream, 1)]


def is_wanted(voice: PodLogSource, query: LogQuery) -> bool:
    """Return whether a pod can hold a wanted line."""
    if query.attempt is not None and voice.attempt != query.attempt:
        return False
    if voice.role is Role.LAUNCHER:
        return not query.roles or bool({Role.LAUNCHER, Role.RANK} & set(query.roles))
    return not query.ranks and (not query.roles or Role.WORKER in query.roles)


def _whole(api: Api, position: Position, kept: Kept | None, since: str) -> Iterator[LogLine]:
    try:
        yield from so_far(api, position, kept, since)
    except ApiError as error:
        if error.status < 500:
            raise
        yield position.reader.unread(error, int(api.now() * 1e9))  # of others there is something to read
    yield from position.reader.flush()


def so_far(api: Api, position: Position, kept: Kept | None = None, since: str = "") -> Iterator[LogLine]:
    """Yield what one pod has said until now, from a moment on."""
    voice = position.voice
    try:
        stream = api.lines(voice.path, container=voice.container, timestamps="true", sinceTime=since)
    except ApiError as error:
        if error.status not in _GONE:
            raise
        if kept is not None:
            yield from position.lines(kept(voice))
        return
    try:
        yield from position.lines(stream)
    finally:
        stream.close()
