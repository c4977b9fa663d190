"""The reference: the same program under the family's own mpiexec, without this package.

It is what a user types, with none of our settings.
"""

from __future__ import annotations

from typing import NamedTuple

from bench.places import Place
from mpijob.model import Family, MPIJob

OWN_VARIABLES = "MPIJOB_"


class Bare(NamedTuple):
    """A command with its environment."""

    argv: list[str]
    environ: dict[str, str]


def plain(place: Place, job: MPIJob) -> Bare:
    """Return `mpiexec -n N program` with the same program, library and settings of the program."""
    plan = place.client.plan(job)
    dropped = ("HYDRA_", "I_MPI_", "FI_", "PRTE_MCA_", "OMPI_MCA_", OWN_VARIABLES)
    environ = {name: value for name, value in plan.env.items() if not name.startswith(dropped)}
    spread = ["--map-by", ":OVERSUBSCRIBE"] if plan.family is Family.OPENMPI else []
    return Bare([plan.launch[0], *spread, "-n", str(plan.world), *job.argv], environ)
