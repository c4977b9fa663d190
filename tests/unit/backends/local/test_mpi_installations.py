"""Which MPI library a launcher belongs to is asked once, and asked again where it gave no answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpijob.backends.local.storage.paths import Home
from mpijob.backends.mpi import mpi_installations
from mpijob.model import Family
from mpijob.settings import Settings

ANSWERS = "echo asked >>{asked}; echo 'mpirun (Open MPI) 5.0.9'"


def launcher(place: Path, script: str) -> Settings:
    path = place / "mpi" / "bin" / "mpirun"
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.write_text(f"#!/bin/sh\nexec /bin/sh {place}/script\n")
        path.chmod(0o755)
    (place / "script").write_text(script.format(asked=place / "asked"))
    return Settings(home=str(place / "home"), mpi_directories={"openmpi": str(place / "mpi")})


def version(settings: Settings) -> str:
    found = mpi_installations.candidates(settings, Home(settings.home), Family.OPENMPI)
    return next((one.version for one in found if one.prefix in settings.mpi_directories.values()), "")


def test_a_launcher_is_asked_once(tmp_path: Path) -> None:
    settings = launcher(tmp_path, ANSWERS)
    assert [version(settings), version(settings)] == ["5.0.9", "5.0.9"]
    assert (tmp_path / "asked").read_text() == "asked\n"


@pytest.mark.thorough
@pytest.mark.parametrize(
    "trouble", ["sleep 60", "echo 'cannot open shared object file: libhwloc.so.15' >&2; exit 127"]
)
def test_a_launcher_that_gave_no_answer_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    monkeypatch.setattr(mpi_installations, "_VERSION_SECONDS", 0.5)
    settings = launcher(tmp_path, f"exec {trouble}" if trouble.startswith("sleep") else trouble)
    assert version(settings) == ""
    monkeypatch.undo()
    assert version(launcher(tmp_path, ANSWERS)) == "5.0.9"
