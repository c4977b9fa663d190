"""A fresh engine for every test, with all three MPI families; whatever a test leaves running is a failure."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpijob import Client
from mpijob.settings import Settings

from .support import FAMILIES, check_nothing_runs, emptied_client


@pytest.fixture(scope="session")
def mpi_directories() -> dict[str, str]:
    root = os.environ.get("MPIJOB_TEST_MPI", "")
    if not root:
        pytest.fail(
            "MPIJOB_TEST_MPI is not set: it names the directory with openmpi/ and intel/ (make test sets it)"
        )
    found = {
        family: str(Path(root).resolve() / family) for family in FAMILIES if (Path(root) / family).is_dir()
    }
    if missing := {"openmpi", "intel"} - found.keys():
        pytest.fail(
            f"{root} has no {' and no '.join(sorted(missing))}: each is the prefix of one MPI library"
        )
    return found


@pytest.fixture
def settings(tmp_path: Path, mpi_directories: dict[str, str]) -> Settings:
    return Settings(
        home=str(tmp_path / "home"), cores=4, memory="8Gi", gpus=0, mpi_directories=mpi_directories
    )


@pytest.fixture
def client(settings: Settings) -> Iterator[Client]:
    with emptied_client(settings) as client:
        yield client
    check_nothing_runs(Path(settings.home) / "jobs")  # a runner may listen for more a while


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)
