"""MPI calls of Fortran programs are counted: mpif.h, the mpi module and mpi_f08, with the distribution's libraries."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from . import runs
from .catalogue import Program, binary
from .installations import SYSTEM, Installation

CALLS = {  # of each rank; the bindings that the source uses
    "fixed.f": {"MPI_Bcast": 1, "MPI_Reduce": 1},  # mpif.h
    "legacy.f90": {"MPI_Allreduce": 1},  # use mpi
    "modern.f90": {"MPI_Isend": 1, "MPI_Irecv": 1, "MPI_Waitall": 1, "MPI_Comm_split": 1},  # use mpi_f08
}


@pytest.mark.req("PMV-012", "C-metrics")
@pytest.mark.parametrize("mpi", SYSTEM, ids=lambda mpi: mpi.short)
@pytest.mark.parametrize("source", CALLS)
def test_calls_by_each_of_fortrans_bindings_are_counted(
    source: str, mpi: Installation, built: Path, tmp_path: Path
) -> None:
    program = Program(source, mpi, f"./{binary(source, mpi)}")
    home = tmp_path / "home"
    place = runs.directory(program, built, tmp_path / "ours")
    done = runs.ours(program, place, home, (2, 1), "--profile-mpi")
    assert done.status == 0, done.errors
    variables = runs.environ_of(home)
    argv = [sys.executable, "-m", "mpijob", "profile", "try", "-o", "json"]
    told = subprocess.run(argv, env=variables, capture_output=True, text=True, check=True)
    found = json.loads(told.stdout)
    for rank in found["ranks"]:
        calls = {call["name"]: call["calls"] for call in rank["calls"]}
        assert {name: calls.get(name) for name in CALLS[source]} == CALLS[source]
    assert "lacks" not in found or found["lacks"] == []
