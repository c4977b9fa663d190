"""Read the MPI profiles of an attempt's ranks: a file each, which outlives a rank that was killed.

The files are written by the shim (`profiler`); their format is in `observation/metrics/mpi_profile_file`.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from mpijob.model import JobState
from mpijob.model.status.mpi_profile import RankProfile
from mpijob.observation.metrics import mpi_profile_file

FOLDER = "mpi-profile"


def read(attempt: Path, state: JobState, now: float) -> tuple[RankProfile, ...]:
    """Return what was counted until now, or until the job's end; files that are no profiles are skipped."""
    until = state.finished or now
    workers = {rank.rank: rank.worker for rank in state.ranks}
    found = []
    for path in sorted((attempt / FOLDER).glob("*.mpiprofile")):
        try:
            profile = mpi_profile_file.read(path.name, path.read_bytes(), until)
        except (OSError, mpi_profile_file.BadProfile):
            # Not filled yet, or written by the job itself.
            continue
        worker = None if profile.spawned else workers.get(profile.rank)
        found.append(msgspec.structs.replace(profile, worker=worker))
    return tuple(
        sorted(found, key=lambda profile: (profile.step or 0, profile.again, profile.spawned, profile.rank))
    )
