"""Which MPI library a job gets here, and why: what it asks for, else what its program or options need.

What there is on this machine is known by `mpi_installations`.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

from mpijob.backends.local.planning import mpi_installations
from mpijob.backends.local.planning.mpi_installations import Installation
from mpijob.backends.local.storage.paths import Home
from mpijob.errors import Finding, InvalidJob, Unsupported
from mpijob.model import Family, MPIJob
from mpijob.settings import Settings


class Choice(NamedTuple):
    """A library and the reason for it."""

    found: Installation
    why: str


def choose(job: MPIJob, settings: Settings, home: Home, directory: Path) -> Choice:
    """Return the library that the job runs with; `directory` is where its program is looked for."""
    if job.mpi is Family.CUSTOM:
        assert job.launch.custom is not None
        found = Installation(Family.CUSTOM, "", "", job.launch.custom.command[0])
        return Choice(found, "the job asks for it")
    linked = _linked(job, directory)
    if job.mpi is Family.AUTO:
        return _suited(job, linked, settings, home)
    if linked and job.mpi not in linked:
        raise InvalidJob.of((_mismatch(job, linked[0], job.mpi),))
    return Choice(mpi_installations.find(settings, home, job.mpi), "the job asks for it")


def _suited(job: MPIJob, linked: tuple[Family, ...], settings: Settings, home: Home) -> Choice:
    """Return what suits a job that asks for no library."""
    if job.launch.rankfile:
        if linked and Family.OPENMPI not in linked:
            raise InvalidJob.of((_mismatch(job, linked[0], Family.OPENMPI),))
        return Choice(_open_mpi(settings, home), "launch.rankfile is an option of Open MPI alone")
    if linked:
        return Choice(mpi_installations.find(settings, home, linked[0]), f"{job.argv[0]} is linked to it")
    sturdiest = "the sturdiest here, and the program asks for no other"
    return Choice(mpi_installations.find(settings, home, Family.AUTO), sturdiest)


def _open_mpi(settings: Settings, home: Home) -> Installation:
    try:
        return mpi_installations.find(settings, home, Family.OPENMPI)
    except Unsupported as error:
        raise Unsupported(f"launch.rankfile needs Open MPI: {error.message}", hint=error.hint) from error


def _linked(job: MPIJob, directory: Path) -> tuple[Family, ...]:
    """Return the families whose library the program is linked to, when it is a binary that says so."""
    word = job.argv[0] if job.argv else ""
    path = directory / word if "/" in word else Path(shutil.which(word) or "/nonexistent")
    try:
        with path.open("rb") as file:
            data = file.read(64 << 20) if file.read(4) == b"\x7fELF" else b""
    except OSError:
        return ()
    if b"\0libmpi.so.40\0" in data or b"\0libmpi.so.20\0" in data:
        return (Family.OPENMPI,)
    return (Family.MPICH, Family.INTEL) if b"\0libmpi.so.12\0" in data else ()


def _mismatch(job: MPIJob, linked: Family, wanted: Family) -> Finding:
    need = "launch.rankfile" if job.mpi is Family.AUTO else "mpi"
    return Finding(
        code="MPI_MISMATCH",
        field=need,
        message=f"MPI version mismatch detected. {job.argv[0]} is linked to {linked.value}, not to {wanted.value}",
        hint=f"remove launch.rankfile, or build the program for {wanted.value}"
        if job.mpi is Family.AUTO
        else f"set mpi: {linked.value}, or build the program for {wanted.value}",
    )
