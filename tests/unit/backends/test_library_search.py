"""A library that the loader did not find, but that is among the job's files: the first fix names its directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpijob.backends.attempts.library_search import directories
from mpijob.diagnosis import Evidence, explain
from mpijob.model import Exit, LogLine, MPIJob, Role

_SAID = b"./solver: error while loading shared libraries: libgrid.so.3: cannot open shared object file: No such file"
_LINES = (LogLine(time=1, text=_SAID, role=Role.RANK, worker=0, rank=0),)


def _library(folder: Path, name: str = "libgrid.so.3") -> Path:
    folder.mkdir(parents=True)
    (folder / name).touch()
    return folder


def test_a_library_among_the_jobs_files_is_found_relative_to_where_the_ranks_start(tmp_path: Path) -> None:
    _library(tmp_path / "vendor" / "lib")
    assert directories(tmp_path, "./solver", _LINES) == {"libgrid.so.3": "vendor/lib"}


def test_a_library_beside_an_installed_program_is_found(tmp_path: Path) -> None:
    libraries = _library(tmp_path / "opt" / "lib64")
    (tmp_path / "work").mkdir()
    program = str(tmp_path / "opt" / "bin" / "solver")
    assert directories(tmp_path / "work", program, _LINES) == {"libgrid.so.3": str(libraries)}


def test_another_library_or_none_missing_finds_nothing(tmp_path: Path) -> None:
    _library(tmp_path / "lib", "libgrid.so.2")
    assert directories(tmp_path, "./solver", _LINES) == {}
    assert directories(tmp_path, "./solver", ()) == {}


@pytest.mark.parametrize(("env", "path"), [({}, "lib"), ({"LD_LIBRARY_PATH": "/opt/x"}, "lib:/opt/x")])
def test_the_first_fix_sets_the_loaders_path(env: dict[str, str], path: str) -> None:
    seen = _evidence(env, {"libgrid.so.3": "lib"})
    assert explain(seen)[0].fixes[0].patch == {"env": {"LD_LIBRARY_PATH": path}}


def test_without_the_library_the_fix_names_the_variable_only() -> None:
    fix = explain(_evidence({}, {}))[0].fixes[0]
    assert (fix.text, fix.patch) == ("pass its directory to the ranks: env.LD_LIBRARY_PATH", {})


def _evidence(env: dict[str, str], libraries: dict[str, str]) -> Evidence:
    spec = MPIJob(name="job", command=("./solver",), env=env)
    return Evidence(spec=spec, ranks=(Exit(index=0, code=127, time=1.0),), logs=_LINES, libraries=libraries)
