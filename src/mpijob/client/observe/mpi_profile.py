"""Read the MPI profile of an existing or deleted job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpijob.errors import Conflict, NotFound
from mpijob.observation.metrics import mpi_profile

if TYPE_CHECKING:
    from mpijob.backends.protocol import Backend
    from mpijob.model import JobRef
    from mpijob.model.status.mpi_profile import MpiProfile


def read(reads: Backend, ref: JobRef, step: int | None = None) -> MpiProfile:
    """Return the MPI profile of a job, or of a step of its script."""
    state = reads.get(ref)
    if not reads.spec(state.ref).profile_mpi:
        raise Conflict(
            f"{state.ref} has no MPI profile",
            hint=f"run it with --profile-mpi: mpijob clone {ref.name} --profile-mpi",
        )
    counted = reads.mpi_profile(state.ref)
    found = mpi_profile.profile(counted.ranks, world=state.world, step=step, lacks=counted.lacks)
    if step is not None and step not in found.steps:
        known = (
            f"those with a profile are {', '.join(map(str, found.steps))}" if found.steps else "none has one"
        )
        raise NotFound(f"{state.ref} has no profile of a step {step}", hint=known)
    return found
