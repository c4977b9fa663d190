"""What the ranks in pods counted of their MPI calls, out of the logs into which it is printed.

A worker prints all of its ranks' files into its own log now and then; a rank that has ended also into the launcher's,
which stays when the workers go. The newest of each file counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import msgspec

from mpijob.backends.kubernetes.client import concurrent
from mpijob.backends.kubernetes.client.api import Api, ApiError
from mpijob.backends.kubernetes.logs.pod_logs import PodLogSource
from mpijob.formats.launch.mpi_profile import Assembler, Lack
from mpijob.model import JobState, Role
from mpijob.model.status.mpi_profile import RankProfile, RankProfiles
from mpijob.observation.logs import cri
from mpijob.observation.metrics import mpi_profile_file

_LANES = 8
_LINES = 64  # of each rank in its worker's log: more than it takes to print all of them once
_GONE = (400, 404)


class Reading:
    """The newest profile of each rank, as lines of pods come."""

    def __init__(self, workers: dict[int, int]) -> None:
        self._workers = workers  # by rank
        self._newest: dict[str, RankProfile] = {}
        self._lacks: dict[str, None] = {}

    def feed(self, assembler: Assembler, raw: bytes, worker: int | None) -> RankProfile | None:
        """Take a stamped line of a pod's log; return the profile that it completes, where that is news."""
        stamp, _, text = raw.rstrip(b"\n").partition(b" ")
        found = assembler.feed(text)
        if isinstance(found, Lack):
            self._lacks[f"worker {worker}: {found.message}"] = None
        if found is None or isinstance(found, Lack):
            return None
        try:
            profile = mpi_profile_file.read(found.name, found.data, cri.nanoseconds(stamp) / 1e9)
        except mpi_profile_file.BadProfile:
            return None  # not begun yet, or printed by somebody else
        known = self._newest.get(found.name)
        if known is not None and (known.ended, known.seconds) > (profile.ended, profile.seconds):
            return None
        place = None if profile.spawned else self._workers.get(profile.rank, worker)
        self._newest[found.name] = profile = msgspec.structs.replace(profile, worker=place)
        return profile

    @property
    def profiles(self) -> RankProfiles:
        """All that is known."""
        ordered = sorted(
            self._newest.values(), key=lambda one: (one.step or 0, one.again, one.spawned, one.rank)
        )
        return RankProfiles(tuple(ordered), tuple(self._lacks))


def read(api: Api, voices: Sequence[PodLogSource], state: JobState, slots: int) -> RankProfiles:
    """Return what the pods of the newest attempt have printed."""
    newest = max((voice.attempt for voice in voices), default=1)
    mine = [voice for voice in voices if voice.attempt == newest]
    reading = Reading({rank.rank: rank.worker for rank in state.ranks})
    tail = str(20 + _LINES * max(1, slots))
    workers = [voice for voice in mine if voice.role is Role.WORKER]
    answers = concurrent.together({one.pod: partial(_tail, api, one, tail) for one in workers}, _LANES)
    for voice in workers:
        _feed(reading, answers[voice.pod].value or (), voice.worker)
    if state.phase.final or len(reading.profiles.ranks) < state.world:
        for voice in mine:
            if voice.role is Role.LAUNCHER:
                _feed(reading, _printed(api, voice), None)
    return reading.profiles


def _feed(reading: Reading, lines: Iterable[bytes], worker: int | None) -> None:
    assembler = Assembler()
    for raw in lines:
        reading.feed(assembler, raw, worker)


def _tail(api: Api, voice: PodLogSource, lines: str) -> list[bytes]:
    try:
        text = api.raw(voice.path, container=voice.container, timestamps="true", tailLines=lines)
    except ApiError as error:
        if error.status in _GONE or error.status >= 500:
            return []  # gone, or its node does not answer: the launcher's log may have it
        raise
    return [*_ours(text.splitlines())]


def _printed(api: Api, voice: PodLogSource) -> Iterator[bytes]:
    try:
        stream = api.lines(voice.path, container=voice.container, timestamps="true")
    except ApiError as error:
        if error.status in _GONE or error.status >= 500:
            return
        raise
    try:
        yield from _ours(stream)
    finally:
        stream.close()


def _ours(lines: Iterable[bytes]) -> Iterator[bytes]:
    return (raw for raw in cri.stamped(iter(lines)) if b"mpijob-mpi " in raw)
