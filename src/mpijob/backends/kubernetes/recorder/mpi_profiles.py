"""Records the ranks' counts of MPI calls, which are in the logs of their pods."""

from __future__ import annotations

import time

from mpijob.backends.kubernetes.metrics.mpi_profile import Reading
from mpijob.errors import BackendError
from mpijob.formats.launch.mpi_profile import Assembler
from mpijob.history import mpi_profiles
from mpijob.history.archive import Archive
from mpijob.history.records import Fact
from mpijob.model import JobKey
from mpijob.model.status.mpi_profile import RankProfile

_EVERY_SECONDS = 10.0


class ProfileNotes:
    """Collects the profiles in the lines of one pod; unwritten ones come again, since counts are cumulative."""

    def __init__(self, archive: Archive, key: JobKey, pod: str, worker: int | None) -> None:
        self._archive, self._key, self._pod, self._worker = archive, key, pod, worker
        self._assembler, self._reading = Assembler(), Reading({})
        self._unwritten: dict[tuple[int | None, int, bool, int], RankProfile] = {}
        self._reported_lacks: tuple[str, ...] = ()
        self._written = 0.0

    def take(self, raw: bytes) -> None:
        if b"mpijob-mpi " not in raw:
            return
        profile = self._reading.feed(self._assembler, raw, self._worker)
        if profile is not None:
            self._unwritten[profile.step, profile.again, profile.spawned, profile.rank] = profile
        if time.monotonic() - self._written >= _EVERY_SECONDS:
            self.write()

    def write(self) -> None:
        """Store new profiles; if that fails, they are stored with the next lines."""
        now, lacks = time.time(), self._reading.profiles.lacks
        facts: list[Fact] = [*mpi_profiles.profile_facts(self._unwritten.values(), now)]
        facts += [
            mpi_profiles.missing_profile(self._pod, message, now)
            for message in lacks
            if message not in self._reported_lacks
        ]
        if not facts:
            return
        try:
            self._archive.add_facts(self._key, facts)
        except BackendError:
            return
        self._written, self._reported_lacks = time.monotonic(), lacks
        self._unwritten.clear()
