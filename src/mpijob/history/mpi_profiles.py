"""What was counted of the MPI calls of jobs that are gone: a fact for each rank of the last attempt."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from mpijob import codec
from mpijob.history.records import Fact
from mpijob.model.status.mpi_profile import RankProfile, RankProfiles

if TYPE_CHECKING:
    from mpijob.history.archive_reader import ArchiveReader
    from mpijob.model import JobRef

KIND, LACKS = "mpi-profile", "mpi-profile-lack"


def facts(profiles: Iterable[RankProfile], now: float) -> tuple[Fact, ...]:
    """Return profiles as facts of a job; a later one of the same rank takes the place of an earlier."""
    return tuple(Fact(KIND, _name(one), now, msgspec.to_builtins(one)) for one in profiles)


def read(past: ArchiveReader, ref: JobRef) -> RankProfiles:
    """Return the profiles that were written down of a job."""
    record = past.record(ref)
    known = [one for one in (record.facts if record else ()) if one.kind in (KIND, LACKS)]
    return RankProfiles(
        tuple(codec.convert(one.data, RankProfile) for one in known if one.kind == KIND),
        tuple(str(one.data["message"]) for one in known if one.kind == LACKS),
    )


def lack(where: str, message: str, now: float) -> Fact:
    """Return as a fact why a worker counts nothing."""
    return Fact(LACKS, where, now, {"message": message})


def _name(one: RankProfile) -> str:
    step = "" if one.step is None else f"step-{one.step}-"
    return f"{step}{'spawned' if one.spawned else 'rank'}-{one.rank}.{one.again}"
