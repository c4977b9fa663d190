"""Each program prints with mpijob what it prints with plain mpirun, and none runs as many worlds of one."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .catalogue import BUILT, HIDDEN, OPENMPI, PROGRAMS, SOURCES, WORLD, Program

SECONDS = 180
LAUNCHERS = {
    OPENMPI: ("mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"),
    "mpich": ("mpiexec.hydra",),
}


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with every source, compiled by the system's compilers."""
    place = tmp_path_factory.mktemp("programs")
    for name, text in SOURCES.items():
        (place / name).write_text(text)
    (place / "run.sh").chmod(0o755)
    for name, line in BUILT.items():
        subprocess.run([*shlex.split(line), "-o", name], cwd=place, check=True)
    return place


def plain(program: Program, place: Path) -> tuple[int, list[str]]:
    line = [*LAUNCHERS[program.family], "-n", "2", *shlex.split(program.command)]
    done = subprocess.run(line, cwd=place, capture_output=True, stdin=subprocess.DEVNULL, timeout=SECONDS)
    return done.returncode, numbers(program.numbers, done.stdout)


def ours(command: str, place: Path, home: Path, workers: int, slots: int) -> tuple[int, bytes, bytes]:
    words = [
        "run",
        "try",
        f"--workers={workers}",
        f"--slots={slots}",
        "--cpu=500m",
        "--raw",
        "--no-prefix",
        "--code=.",
    ]
    argv = [sys.executable, "-m", "mpijob", *words, "--", *shlex.split(command)]
    environ = {**os.environ, "MPIJOB_HOME": str(home)}
    done = subprocess.run(
        argv, cwd=place, capture_output=True, stdin=subprocess.DEVNULL, timeout=SECONDS, env=environ
    )
    return done.returncode, done.stdout, done.stderr


def numbers(pattern: str, said: bytes) -> list[str]:
    found = re.findall(pattern, said.decode(errors="replace"), re.M)
    return sorted(" ".join(one.split()) for one in found)


CASES = [
    pytest.param(program, *layout, id=f"{program.name} {layout[0]}x{layout[1]}")
    for program in PROGRAMS
    for layout in program.layouts
]


@pytest.mark.parametrize(("program", "workers", "slots"), CASES)
def test_a_program_prints_what_it_prints_with_plain_mpirun(
    built: Path, tmp_path: Path, program: Program, workers: int, slots: int
) -> None:
    apart = shutil.copytree(built, tmp_path / "plain")
    here = shutil.copytree(built, tmp_path / "ours")
    code, expected = plain(program, apart)
    status, said, told = ours(program.command, here, tmp_path / "home", workers, slots)
    assert expected, "plain mpirun printed nothing of what is compared"
    assert numbers(program.numbers, said) == expected, told.decode(errors="replace")[-2000:]
    assert (status == 0) == (code == 0)


@pytest.mark.parametrize("command", HIDDEN)
def test_what_hides_its_mpi_is_one_world_or_none(built: Path, tmp_path: Path, command: str) -> None:
    here = shutil.copytree(built, tmp_path / "ours")
    status, said, _ = ours(command, here, tmp_path / "home", 2, 1)
    worlds = {one.split()[3] for one in numbers(WORLD, said)}
    assert (worlds, status) in (({"2"}, 0), (set(), 1))
