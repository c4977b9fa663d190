"""`doctor` says of an MPI only what it has tried: two real ranks in one world, or what went wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpijob.backends.mpi import mpi_installations
from mpijob.backends.mpi.mpi_installations import Installation
from mpijob.client.admin import doctor
from mpijob.errors import Severity
from mpijob.model import Family
from mpijob.settings import Settings

pytestmark = pytest.mark.engine


def test_every_installation_is_tried_with_two_ranks(
    settings: Settings, mpi_directories: dict[str, str]
) -> None:
    said = [one.message for one in doctor.report(settings) if one.message.startswith("MPI ")]
    for directory in mpi_directories.values():
        assert [one for one in said if directory in one and "passed a test with two mpi4py ranks" in one]


def broken(place: Path, script: str) -> Installation:
    launcher = place / "mpiexec"
    launcher.write_text(f"#!/bin/sh\n{script}\n")
    launcher.chmod(0o755)
    return Installation(Family.MPICH, "5.0", str(place), str(launcher))


@pytest.mark.parametrize(
    ("script", "word"),
    [
        ("echo world of 1; echo world of 1", "2 worlds of 1, 1"),
        ("echo 'no such library' >&2; exit 7", "exit status 7: no such library"),
        ("exit 0", "nobody"),
    ],
)
def test_what_is_no_world_of_two_is_told(tmp_path: Path, script: str, word: str) -> None:
    assert word in mpi_installations.test_run(broken(tmp_path, script))


def test_an_mpi_that_does_not_work_is_a_warning(tmp_path: Path) -> None:
    prefix = tmp_path / "mpi"
    (prefix / "bin").mkdir(parents=True)
    launcher = prefix / "bin" / "mpirun"
    launcher.write_text("#!/bin/sh\n[ $1 = --version ] && echo 'mpirun (Open MPI) 4.1.9' && exit\nexit 3\n")
    launcher.chmod(0o755)
    settings = Settings(home=str(tmp_path / "home"), mpi_directories={"openmpi": str(prefix)})
    (found,) = (one for one in doctor.report(settings) if str(prefix) in one.message)
    assert (found.code, found.severity) == ("DOCTOR_MPI", Severity.WARNING)
