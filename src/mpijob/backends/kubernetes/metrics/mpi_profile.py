"""The ranks' counts of MPI calls, from the logs into which they are printed.

A worker prints all of its ranks' files into its own log from time to time; a rank that ends prints its file
also into the launcher's log, which is kept when the workers are deleted. The newest version of each file
counts.
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
# Of each rank in its worker's log: more than one print of all files takes.
_LINES = 64
_GONE = (400, 404)


class Reading:
    """The newest profile of each rank, from lines as they are read."""

    def __init__(self, workers: dict[int, int]) -> None:
        # By rank.
        self._workers = workers
        self._newest: dict[str, RankProfile] = {}
        self._lacks: dict[str, None] = {}

    def feed(self, assembler: Assembler, raw: bytes, worker: int | None) -> RankProfile | None:
        """Parse a timestamped line of a pod's log; return the profile that it completes, if it is a newer one."""
        stamp, _, text = raw.rstrip(b"\n").partition(b" ")
        found = assembler.feed(text)
        if isinstance(found, Lack):
            self._lacks[f"worker {worker}: {found.message}"] = None
        if found is None or isinstance(found, Lack):
            return None
        try:
            profile = mpi_profile_file.read(found.name, found.data, cri.nanoseconds(stamp) / 1e9)
        except mpi_profile_file.BadProfile:
            # Incomplete, or printed by another program.
            return None
        known = self._newest.get(found.name)
        # Lines of two logs may arrive in any order.
        if known is not None and (known.ended, known.seconds) > (profile.ended, profile.seconds):
            return None
        place = None if profile.spawned else self._workers.get(profile.rank, worker)
        self._newest[found.name] = profile = msgspec.structs.replace(profile, worker=place)
        return profile

    @property
    def profiles(self) -> RankProfiles:
        """All profiles so far."""
        ordered = sorted(
            self._newest.values(),
            key=lambda profile: (profile.step or 0, profile.again, profile.spawned, profile.rank),
        )
        return RankProfiles(tuple(ordered), tuple(self._lacks))


def read(api: Api, sources: Sequence[PodLogSource], state: JobState, slots: int) -> RankProfiles:
    """Return the profiles that the pods of the newest attempt have printed."""
    newest = max((source.attempt for source in sources), default=1)
    current = [source for source in sources if source.attempt == newest]
    reading = Reading({rank.rank: rank.worker for rank in state.ranks})
    tail = str(20 + _LINES * max(1, slots))
    workers = [source for source in current if source.role is Role.WORKER]
    results = concurrent.together(
        {worker.pod: partial(_tail, api, worker, tail) for worker in workers}, _LANES
    )
    for source in workers:
        _feed(reading, results[source.pod].value or (), source.worker)
    if state.phase.final or len(reading.profiles.ranks) < state.world:
        for source in current:
            if source.role is Role.LAUNCHER:
                _feed(reading, _from_launcher(api, source), None)
    return reading.profiles


def _feed(reading: Reading, lines: Iterable[bytes], worker: int | None) -> None:
    assembler = Assembler()
    for raw in lines:
        reading.feed(assembler, raw, worker)


def _tail(api: Api, source: PodLogSource, lines: str) -> list[bytes]:
    try:
        text = api.raw(source.path, container=source.container, timestamps="true", tailLines=lines)
    except ApiError as error:
        if error.status in _GONE or error.status >= 500:
            # Deleted, or its node is unreachable; the launcher's log may have the profile.
            return []
        raise
    return [*_ours(text.splitlines())]


def _from_launcher(api: Api, source: PodLogSource) -> Iterator[bytes]:
    try:
        stream = api.lines(source.path, container=source.container, timestamps="true")
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
