"""MPI profiles of deleted jobs: a fact for each rank of the last attempt.

Profiles of jobs that still exist are read by the engines.
"""

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

PROFILE, MISSING_PROFILE = "mpi-profile", "mpi-profile-lack"


def profile_facts(profiles: Iterable[RankProfile], now: float) -> tuple[Fact, ...]:
    """Return profiles as facts of a job; a later one of the same rank replaces an earlier one."""
    return tuple(Fact(PROFILE, _name(profile), now, msgspec.to_builtins(profile)) for profile in profiles)


def read_profiles(reader: ArchiveReader, ref: JobRef) -> RankProfiles:
    return RankProfiles(
        tuple(codec.convert(fact.data, RankProfile) for fact in reader.facts(ref, PROFILE)),
        tuple(str(fact.data["message"]) for fact in reader.facts(ref, MISSING_PROFILE)),
    )


def missing_profile(worker: str, message: str, now: float) -> Fact:
    """Return a fact that says why a worker has no profile."""
    return Fact(MISSING_PROFILE, worker, now, {"message": message})


def _name(profile: RankProfile) -> str:
    step = "" if profile.step is None else f"step-{profile.step}-"
    return f"{step}{'spawned' if profile.spawned else 'rank'}-{profile.rank}.{profile.again}"
