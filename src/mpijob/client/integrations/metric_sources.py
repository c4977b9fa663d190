"""Sources of metrics: the engine of a client with its history, or a record alone."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from mpijob.errors import MpiJobError, NotFound
from mpijob.history import mpi_profiles
from mpijob.model import JobRef, LogQuery, Phase, Sample
from mpijob.observation.metrics import mpi_profile, training

if TYPE_CHECKING:
    from mpijob.client.client import Client
    from mpijob.history.archive import Archive
    from mpijob.history.archive_reader import ArchiveReader
    from mpijob.model import Event, JobState
    from mpijob.model.status.accounts import Account, AccountQuery
    from mpijob.model.status.mpi_profile import MpiProfile
    from mpijob.observation.metrics.training import Curves, Point

_GOING = tuple(phase for phase in Phase if not phase.final)
_RECENT_SECONDS = 120.0


class OfClient:
    """The jobs of a client."""

    def __init__(self, client: Client, *, all_namespaces: bool = True) -> None:
        self._client, self._everywhere = client, all_namespaces
        # By uid: whether the job's MPI calls are counted.
        self._profiled: dict[str, bool] = {}

    def going(self) -> Iterator[JobState]:
        return self._client.jobs(all_namespaces=self._everywhere, phases=_GOING)

    def ended(self, query: AccountQuery) -> Iterator[Account]:
        chosen = msgspec.structs.asdict(query) | {"namespace": None, "all_namespaces": self._everywhere}
        while True:
            page = self._client.accounts(**chosen)
            yield from page.items
            if not page.after:
                return
            chosen["after"] = page.after

    def events(self, ref: JobRef) -> Iterable[Event]:
        try:
            return tuple(self._client.events(ref))
        # Erased meanwhile.
        except NotFound:
            return ()

    def used(self, ref: JobRef) -> Iterable[Sample]:
        try:
            return latest(self._client.metrics(ref))
        except NotFound:
            return ()

    def curves(self, ref: JobRef) -> Curves | None:
        try:
            return self._client.curves(ref, since=time.time() - _RECENT_SECONDS)
        except MpiJobError:
            return None

    def profile(self, ref: JobRef) -> MpiProfile | None:
        try:
            if ref.uid not in self._profiled:
                self._profiled[ref.uid] = self._client.spec(ref).profile_mpi
            return self._client.profile(ref) if self._profiled[ref.uid] else None
        # Erased meanwhile, or may not be read.
        except MpiJobError:
            return None

    def state(self, ref: JobRef) -> JobState | None:
        try:
            return self._client.state(ref)
        except NotFound:
            return None

    def points(self, ref: JobRef, since: float | None) -> Iterable[Point]:
        return self._client.points(ref, since=since)

    def health(self) -> dict[str, tuple[str, float]]:
        return {}


class OfRecord:
    """The jobs of a recorder's archive."""

    def __init__(self, archive: Archive, past: ArchiveReader, patterns: tuple[str, ...] = ()) -> None:
        self._archive, self._past = archive, past
        self._read, self._wanted = training.reader(patterns), "" if patterns else training.PREFILTER

    def going(self) -> Iterator[JobState]:
        return self._past.unfinished_jobs()

    def ended(self, query: AccountQuery) -> Iterable[Account]:
        return self._past.accounts(query)

    def events(self, ref: JobRef) -> Iterable[Event]:
        return self._past.events(ref)

    def used(self, ref: JobRef) -> Iterable[Sample]:
        return latest(self._past.samples(ref, since=time.time() - _RECENT_SECONDS))

    def curves(self, ref: JobRef) -> Curves | None:
        query = LogQuery(regex=self._wanted, since=time.time() - _RECENT_SECONDS)
        return training.curves(training.points(self._past.logs(ref, query), self._read))

    def profile(self, ref: JobRef) -> MpiProfile | None:
        counted = mpi_profiles.read_profiles(self._past, ref)
        return mpi_profile.profile(counted.ranks, lacks=counted.lacks) if counted.ranks else None

    def state(self, ref: JobRef) -> JobState | None:
        return self._past.state(ref)

    def points(self, ref: JobRef, since: float | None) -> Iterable[Point]:
        return training.points(self._past.logs(ref, LogQuery(regex=self._wanted, since=since)), self._read)

    def health(self) -> dict[str, tuple[str, float]]:
        lines, size = self._archive.read(
            "SELECT coalesce(sum(lines), 0), coalesce(sum(size), 0) FROM chunks"
        )[0]
        beat = self._archive.read("SELECT coalesce(max(beat), 0) FROM sessions")[0][0]
        return {
            "mpijob_record_lines": ("Stored log lines.", lines),
            "mpijob_record_bytes": ("Disk space of the stored log lines.", size),
            "mpijob_recorder_beat_timestamp_seconds": ("Time of the recorder's last successful write.", beat),
        }


def latest(samples: Iterable[Sample]) -> list[Sample]:
    last = {sample.worker: sample for sample in sorted(samples, key=lambda one: one.time)}
    return [last[worker] for worker in sorted(last)]
