"""Select the MPI installation of a job, with the reason: the requested one, else the one its program is linked to.

A program runs with the installation whose library it loads, else with one of the same family and, for Open MPI,
release. The installations of this machine are found in `mpi_installations`, the library of a program in
`linked_mpi`.
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

_FIND_LAUNCHER = (
    "for name in mpirun mpiexec; do if path=$(command -v $name); then "
    'echo "$path"; $name --version 2>&1 | head -n 5; break; fi; done'
)


class Choice(NamedTuple):
    """An installation and the reason for it."""

    installation: Installation
    reason: str


def choose(job: MPIJob, settings: Settings, home: StateHome, directory: Path) -> Choice:
    """Return the installation for a job; `directory` is where its program is searched.

    Raise InvalidJob if the program is linked to another family than the requested one, Unsupported if there is no
    suitable installation.
    """
    if job.mpi is Family.CUSTOM:
        assert job.launch.custom is not None
        return Choice(Installation(Family.CUSTOM, "", "", job.launch.custom.command[0]), "set in the job")
    wanted = Family.OPENMPI if job.launch.rankfile and job.mpi is Family.AUTO else job.mpi
    environ = _environ(job)
    # The job will find these libraries first, so the loader must as well.
    if prefix := settings.mpi_directories.get(wanted.value):
        environ["LD_LIBRARY_PATH"] = f"{prefix}/lib{os.pathsep}{environ.get('LD_LIBRARY_PATH', '')}"
    linked = linked_mpi.find_in_commands(_commands(job), directory, environ)
    if linked is not None:
        if wanted is not Family.AUTO and wanted not in linked.families:
            raise InvalidJob.of((_mismatch(job, linked, wanted),))
        return _choose_for_linked(job, linked, wanted, settings, home)
    if wanted is not Family.AUTO:
        return _choose_requested(job, wanted, settings, home)
    if started := _started_by_command(job, home):
        return Choice(started, f"{started.launcher} is the one that the command starts")
    return Choice(mpi_installations.find(settings, home, Family.AUTO), "default MPI library")


def choose_remote(job: MPIJob, call: Callable[[tuple[str, ...]], str], machine: str) -> Choice:
    """Return the installation on another machine; `call` runs a command there and returns its output."""
    word = job.argv[0] if job.argv else job.programs[0].command[0]
    launcher, _, version = call(("sh", "-c", _FIND_LAUNCHER)).partition("\n")
    linked = linked_mpi.parse_ldd(word, call(("sh", "-c", f'ldd "$(command -v {shlex.quote(word)})"')))
    found = mpi_installations.parse_version(version.encode())
    family, number = (Family(found[0]), found[1]) if found else (job.mpi, "")
    if job.mpi is not Family.AUTO and job.mpi is not family:
        return Choice(Installation(job.mpi, "", "", "mpirun"), "set in the job")
    if linked is not None and family not in linked.families:
        installation = Installation(linked.families[0], "", "", "mpirun")
        return Choice(installation, f"{word} is linked to it on {machine}")
    if family is Family.AUTO:
        reason = f"{machine} has no mpirun on its PATH, and the job names none"
        return Choice(Installation(Family.MPICH, "", "", "mpirun"), reason)
    return Choice(Installation(family, number, "", launcher), f"it is the one on {machine}'s PATH")


def _choose_for_linked(
    job: MPIJob, linked: LinkedMPI, wanted: Family, settings: Settings, home: StateHome
) -> Choice:
    """Return the installation that starts a program of a known MPI."""
    families = linked.families if wanted is Family.AUTO else (wanted,)
    candidates = [
        installation
        for family in families
        for installation in mpi_installations.candidates(settings, home, family, near=linked.library)
    ]
    name = os.path.basename(linked.program)
    if exact := next((candidate for candidate in candidates if candidate.owns(linked.library)), None):
        return Choice(exact, f"{name} loads its {linked.library}")
    for candidate in candidates:
        if not linked.major or candidate.version.startswith(f"{linked.major}."):
            reason = "set in the job" if wanted is not Family.AUTO else f"{name} is linked to it"
            return Choice(candidate, reason)
    raise Unsupported(
        f"{linked.program} is linked to {_describe(linked)}, and this machine has no launcher for it",
        hint=_install_hint(linked, families[0]),
    )


def _choose_requested(job: MPIJob, wanted: Family, settings: Settings, home: StateHome) -> Choice:
    """Return the requested installation for a program whose MPI is unknown."""
    reason = "set in the job" if job.mpi is wanted else "launch.rankfile is an option of Open MPI alone"
    try:
        return Choice(mpi_installations.find(settings, home, wanted), reason)
    except Unsupported as error:
        if job.mpi is wanted:
            raise
        raise Unsupported(f"launch.rankfile needs Open MPI: {error.message}", hint=error.hint) from error


def _started_by_command(job: MPIJob, home: StateHome) -> Installation | None:
    """Return the installation of the mpirun that a command or script starts itself, as in the user's shell."""
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
    names = ("PATH", "LD_LIBRARY_PATH")
    environ = {name: os.environ[name] for name in names if name in os.environ}
    python_bin = mpi_installations.environment_bin()
    environ["PATH"] = os.pathsep.join([*python_bin, environ.get("PATH", os.defpath)])
    return environ | {name: value for name, value in job.env.items() if name in names}


def _describe(linked: LinkedMPI) -> str:
    name = NAMES[linked.families[0]] + (f" {linked.major}" if linked.major else "")
    return f"{name} ({linked.library})" if linked.library else name


def _install_hint(linked: LinkedMPI, family: Family) -> str:
    """Return how to install the launcher: from the same source as the library."""
    if linked.library.startswith(("/usr/lib/", "/lib/")):
        package = {Family.OPENMPI: "openmpi-bin", Family.MPICH: "mpich"}.get(family, "")
        if package:
            return f"install its launcher: apt install {package} (dnf install {package.removesuffix('-bin')})"
    if family is Family.OPENMPI and linked.major == "4":
        return "install the Open MPI 4 that it was built with, and put its mpirun on the PATH"
    return f"run: mpijob mpi install {family.value}"


def _mismatch(job: MPIJob, linked: LinkedMPI, wanted: Family) -> Finding:
    field = "launch.rankfile" if job.mpi is Family.AUTO else "mpi"
    family = linked.families[0].value
    return Finding(
        code="MPI_MISMATCH",
        field=field,
        message=f"MPI version mismatch detected. {linked.program} is linked to {_describe(linked)}, "
        f"not to {wanted.value}",
        hint=f"remove launch.rankfile, or build the program for {wanted.value}"
        if job.mpi is Family.AUTO
        else f"set mpi: {family}, or build the program for {wanted.value}",
    )
