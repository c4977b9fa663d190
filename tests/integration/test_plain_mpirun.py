"""C programs for the areas of MPI say with mpijob what they say with plain mpirun of the same installation.

The quick round of `make test-programs`, which has the distribution's programs too: here are those of PyPI's MPIs.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.e2e.programs import runs
from tests.e2e.programs.installations import MPICH5, OPENMPI5, PYPI, Installation

from mpijob import Client
from mpijob.model import Resources

from .support import a_job, said, succeeded

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("plain mpirun")]  # each source is compiled once

AREAS = ("point_to_point", "collectives", "one_sided", "threads", "file")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("built")
    for mpi in (MPICH5, OPENMPI5):
        for area in AREAS:
            line = f"{mpi.compilers['.c']} {runs.HERE / 'sources' / area}.c -lpthread"
            runs.compile_source(line, place / f"{area}-{mpi.short}")
    return place


@pytest.mark.parametrize("area", AREAS)
@pytest.mark.parametrize("mpi", PYPI, ids=lambda mpi: mpi.short)
def test_a_program_says_what_it_says_with_plain_mpirun(
    client: Client, built: Path, tmp_path: Path, mpi: Installation, area: str
) -> None:
    program = str(built / f"{area}-{'openmpi5' if mpi is OPENMPI5 else 'mpich5'}")
    argv = [*mpi.launcher, "-n", "2", program]
    plain = subprocess.run(
        argv, cwd=tmp_path, env=os.environ | mpi.variables, capture_output=True, text=True, timeout=60
    )
    assert plain.returncode == 0, plain.stderr
    family = mpi.option.removeprefix("--mpi=")
    roomy = Resources(cpu="500m", memory="512Mi")
    job = succeeded(client, a_job("same", mpi=family, command=(program,), resources=roomy))
    lines = sorted(line for lines in said(job).values() for line in lines if line.startswith("rank "))
    assert len(lines) == 2
    assert lines == sorted(plain.stdout.splitlines())
