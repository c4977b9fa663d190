"""Each program prints with mpijob what it prints with plain mpirun, and none runs as many worlds of one."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from . import runs
from .catalogue import PROGRAMS, WORLD, Program
from .hidden import FILES, WAYS
from .installations import OPENMPI4
from .runs import Run

REFUSALS = ("WRONG_WORLD", "MPI_MISMATCH")  # for no other reason may a hidden way fail
Record = Callable[[str, object], None]


class NotEqualError(AssertionError):
    """Other numbers than plain mpirun's, or another end."""


def case(program: Program, layout: tuple[int, int]) -> object:
    marks = [pytest.mark.xfail(raises=NotEqualError, strict=True, reason=program.exception)]
    name = f"{program.name}, {program.mpi.name}, {layout[0]}x{layout[1]}"
    return pytest.param(program, layout, id=name, marks=marks if program.exception else [])


@pytest.fixture(scope="session")
def plain_run(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Program, int], Run]:
    """Run each program once for each number of ranks."""
    numbered: dict[tuple[str, str, int], Run] = {}

    def run(program: Program, ranks: int) -> Run:
        key = (program.command, program.mpi.name, ranks)
        if key not in numbered:
            place = runs.directory(program, built, tmp_path_factory.mktemp("plain") / "here")
            numbered[key] = runs.plain(program, place, ranks)
        return numbered[key]

    return run


@pytest.mark.parametrize(
    ("program", "layout"), [case(one, layout) for one in PROGRAMS for layout in one.layouts]
)
def test_a_program_prints_what_it_prints_with_plain_mpirun(
    program: Program, layout: tuple[int, int], built: Path, tmp_path: Path,
    plain_run: Callable[[Program, int], Run], record_property: Record,
) -> None:  # fmt: skip
    workers, slots = layout
    expected = plain_run(program, workers * slots)
    wanted = expected.numbers(program.numbers)
    assert wanted, f"plain mpirun ({expected.status}) printed nothing of what is compared:\n{_end(expected)}"
    got = runs.ours(program, runs.directory(program, built, tmp_path / "ours"), tmp_path / "home", layout)
    numbers = got.numbers(program.numbers)
    result = _result(expected, wanted, got, numbers)
    row = (program.name, program.mpi.name, f"{workers}x{slots}", program.exception or result)
    record_property("row", (*row, f"{expected.seconds:.1f}", f"{got.seconds:.1f}"))
    assert not result.startswith("WRONG WORLD"), f"{wanted} became {numbers}\n{_end(got)}"
    if program.name == "exit status 7":
        assert (expected.status, got.status) == (7, 1)
        assert "exited with code 7" in got.errors
    if result != "equal":
        raise NotEqualError(f"{result}: {wanted} became {numbers}\n{_end(got)}")


def _result(expected: Run, wanted: list[str], got: Run, numbers: list[str]) -> str:
    if numbers == wanted and (got.status == 0) == (expected.status == 0):
        return "equal"
    if got.status == 0 and len(numbers) != len(wanted):
        return "WRONG WORLD"
    return (
        f"ended with {got.status}, plain mpirun with {expected.status}"
        if numbers == wanted
        else "other numbers"
    )


def _end(run: Run) -> str:
    return f"{run.output[-1500:]}\n{run.errors[-2500:]}"


@pytest.mark.parametrize("way", WAYS)
def test_what_hides_its_mpi_has_one_world_or_none(
    way: str, built: Path, tmp_path: Path, record_property: Record
) -> None:
    option, command = _split(WAYS[way])
    program = Program(way, replace(OPENMPI4, option=option), command, files=FILES)
    got = runs.ours(program, runs.directory(program, built, tmp_path / "ours"), tmp_path / "home", (2, 1))
    worlds = [one.split()[3] for one in got.numbers(WORLD)]
    (code,) = re.findall(r"\[([A-Z_]+)\]", got.errors)[-1:] or ("",)
    result = (
        "one world"
        if worlds == ["2", "2"]
        else f"refused: {code}"
        if got.status
        else f"WRONG WORLD: {worlds}"
    )
    record_property("row", (way, option or "auto", "2x1", result, "", f"{got.seconds:.1f}"))
    assert result in ("one world", *(f"refused: {one}" for one in REFUSALS)), _end(got)


def _split(way: str) -> tuple[str, str]:
    option, _, command = way.partition(" ")
    return (option, command) if option.startswith("--") else ("", way)
