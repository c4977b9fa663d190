"""What the ranks of an attempt counted of their MPI calls: a file each, which outlives a rank that was killed."""

from __future__ import annotations

from pathlib import Path

import msgspec

from mpijob.model import JobState
from mpijob.model.status.mpi_profile import RankProfile
from mpijob.observation.metrics import mpi_profile_file

FOLDER = "mpi-profile"


def read(attempt: Path, state: JobState, now: float) -> tuple[RankProfile, ...]:
    """Return what was counted until now, or until the job's end; a file that is no profile is passed over."""
    until = state.finished or now
    workers = {rank.rank: rank.worker for rank in state.ranks}
    found = []
    for path in sorted((attempt / FOLDER).glob("*.mpiprofile")):
        try:
            profile = mpi_profile_file.read(path.name, path.read_bytes(), until)
        except (OSError, mpi_profile_file.BadProfile):
            continue  # not begun yet, or written by somebody else
        worker = None if profile.spawned else workers.get(profile.rank)
        found.append(msgspec.structs.replace(profile, worker=worker))
    return tuple(sorted(found, key=lambda one: (one.step or 0, one.again, one.spawned, one.rank)))
