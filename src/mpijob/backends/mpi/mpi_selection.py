"""Which MPI library a job gets here, and why: what it asks for, else what its program is linked to.

What there is on this machine is known by `mpi_installations`, what a program is linked to by `linked_mpi`. A program
runs with the installation whose library it loads, else with one of the same family and, for Open MPI, release.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from mpijob.backends.mpi import linked_mpi, mpi_installations
from mpijob.backends.mpi.linked_mpi import LinkedMPI
from mpijob.backends.mpi.mpi_installations import NAMES, Installation
from mpijob.backends.state_home import StateHome
from mpijob.errors import Finding, InvalidJob, Unsupported
from mpijob.model import Family, MPIJob
from mpijob.model.spec.command import is_launcher, unwrapped
from mpijob.settings import Settings

_LAUNCHER_THERE = (
    "for one in mpirun mpiexec; do if p=$(command -v $one); then "
    'echo "$p"; $one --version 2>&1 | head -n 5; break; fi; done'
)


class Choice(NamedTuple):
    """A library and the reason for it."""

    found: Installation
    why: str


def choose(job: MPIJob, settings: Settings, home: StateHome, directory: Path) -> Choice:
    """Return the library that the job runs with; `directory` is where its program is looked for."""
    if job.mpi is Family.CUSTOM:
        assert job.launch.custom is not None
        found = Installation(Family.CUSTOM, "", "", job.launch.custom.command[0])
        return Choice(found, "set in the job")
    wanted = Family.OPENMPI if job.launch.rankfile and job.mpi is Family.AUTO else job.mpi
    environ = _environ(job)
    if prefix := settings.mpi_directories.get(
        wanted.value
    ):  # its libraries will stand first, so they are asked first
        environ["LD_LIBRARY_PATH"] = f"{prefix}/lib{os.pathsep}{environ.get('LD_LIBRARY_PATH', '')}"
    linked = linked_mpi.find_in_commands(_commands(job), directory, environ)
    if linked is not None:
        if wanted is not Family.AUTO and wanted not in linked.families:
            raise InvalidJob.of((_mismatch(job, linked, wanted),))
        return _linked(job, linked, wanted, settings, home)
    if wanted is not Family.AUTO:
        return _asked(job, wanted, settings, home)
    if own := _own_launcher(job, home):
        return Choice(own, f"{own.launcher} is the one that the command starts")
    sturdiest = "default MPI library"
    return Choice(mpi_installations.find(settings, home, Family.AUTO), sturdiest)


def choose_remote(job: MPIJob, call: Callable[[tuple[str, ...]], str], machine: str) -> Choice:
    """Return the library of another machine that the job runs with: `call` returns what a command there prints."""
    word = job.argv[0] if job.argv else job.programs[0].command[0]
    launcher, _, version = call(("sh", "-c", _LAUNCHER_THERE)).partition("\n")
    linked = linked_mpi.parse_ldd(word, call(("sh", "-c", f'ldd "$(command -v {shlex.quote(word)})"')))
    told = mpi_installations.parse_version(version.encode())
    family, number = (Family(told[0]), told[1]) if told else (job.mpi, "")
    if job.mpi is not Family.AUTO and job.mpi is not family:
        return Choice(Installation(job.mpi, "", "", "mpirun"), "set in the job")
    if linked is not None and family not in linked.families:
        return Choice(
            Installation(linked.families[0], "", "", "mpirun"), f"{word} is linked to it on {machine}"
        )
    if family is Family.AUTO:
        why = f"{machine} has no mpirun on its PATH, and the job names none"
        return Choice(Installation(Family.MPICH, "", "", "mpirun"), why)
    return Choice(Installation(family, number, "", launcher), f"it is the one on {machine}'s PATH")


def _linked(job: MPIJob, linked: LinkedMPI, wanted: Family, settings: Settings, home: StateHome) -> Choice:
    """Return the installation that starts a program of a known MPI."""
    families = linked.families if wanted is Family.AUTO else (wanted,)
    every = [
        one
        for family in families
        for one in mpi_installations.candidates(settings, home, family, near=linked.library)
    ]
    name = os.path.basename(linked.program)
    if exact := next((one for one in every if one.owns(linked.library)), None):
        return Choice(exact, f"{name} loads its {linked.library}")
    for one in every:
        if not linked.major or one.version.startswith(f"{linked.major}."):
            why = "set in the job" if wanted is not Family.AUTO else f"{name} is linked to it"
            return Choice(one, why)
    raise Unsupported(
        f"{linked.program} is linked to {_described(linked)}, and this machine has no launcher for it",
        hint=_install(linked, families[0]),
    )


def _asked(job: MPIJob, wanted: Family, settings: Settings, home: StateHome) -> Choice:
    """Return what a job asks for whose program tells nothing."""
    why = "set in the job" if job.mpi is wanted else "launch.rankfile is an option of Open MPI alone"
    try:
        return Choice(mpi_installations.find(settings, home, wanted), why)
    except Unsupported as error:
        if job.mpi is wanted:
            raise
        raise Unsupported(f"launch.rankfile needs Open MPI: {error.message}", hint=error.hint) from error


def _own_launcher(job: MPIJob, home: StateHome) -> Installation | None:
    """Return the installation of the mpirun that a command starts: the one that its user has at the prompt."""
    words = unwrapped(job.argv)
    if not words or not (is_launcher(words[0]) or job.script):
        return None
    path = shutil.which("mpirun" if job.script else words[0], path=_environ(job)["PATH"])
    return mpi_installations.find_by_launcher(Path(path), home) if path else None


def _commands(job: MPIJob) -> Iterator[tuple[str, ...]]:
    if job.script:
        text = job.code.files.get(job.script)
        yield ("sh", job.script) if text is None else ("sh", "-c", text)
    elif not job.programs:
        yield job.argv
    for program in job.programs:
        yield (*program.command, *program.args)


def _environ(job: MPIJob) -> dict[str, str]:
    """Return the variables by which a program and its libraries are found."""
    here = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    ours = mpi_installations.environment_bin()
    here["PATH"] = os.pathsep.join([*ours, here.get("PATH", os.defpath)])
    return here | {name: value for name, value in job.env.items() if name in ("PATH", "LD_LIBRARY_PATH")}


def _described(linked: LinkedMPI) -> str:
    name = NAMES[linked.families[0]] + (f" {linked.major}" if linked.major else "")
    return f"{name} ({linked.library})" if linked.library else name


def _install(linked: LinkedMPI, family: Family) -> str:
    """Return how the launcher of a linked library is had: from where the library came."""
    if linked.library.startswith(("/usr/lib/", "/lib/")):
        package = {Family.OPENMPI: "openmpi-bin", Family.MPICH: "mpich"}.get(family, "")
        if package:
            return f"install its launcher: apt install {package} (dnf install {package.removesuffix('-bin')})"
    if family is Family.OPENMPI and linked.major == "4":
        return "install the Open MPI 4 that it was built with, and put its mpirun on the PATH"
    return f"run: mpijob mpi install {family.value}"


def _mismatch(job: MPIJob, linked: LinkedMPI, wanted: Family) -> Finding:
    need = "launch.rankfile" if job.mpi is Family.AUTO else "mpi"
    family = linked.families[0].value
    return Finding(
        code="MPI_MISMATCH",
        field=need,
        message=f"MPI version mismatch detected. {linked.program} is linked to {_described(linked)}, "
        f"not to {wanted.value}",
        hint=f"remove launch.rankfile, or build the program for {wanted.value}"
        if job.mpi is Family.AUTO
        else f"set mpi: {family}, or build the program for {wanted.value}",
    )
