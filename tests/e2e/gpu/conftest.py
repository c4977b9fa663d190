"""A fresh local engine that sees the GPUs of this machine. Without one a test fails; it never passes by skipping."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.support import check_nothing_runs, emptied_client

from mpijob import Client
from mpijob.backends.local.planning.machine import gpu_ids
from mpijob.settings import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    root = os.environ.get("MPIJOB_TEST_MPI", "")
    directories = {"mpich": str(Path(root).resolve() / "mpich")} if root else {}
    settings = Settings(home=str(tmp_path / "home"), mpi_directories=directories)
    if not gpu_ids(settings):
        pytest.fail("this machine has no NVIDIA GPU that the driver tells of", pytrace=False)
    return settings


@pytest.fixture
def gpus(settings: Settings) -> int:
    return len(gpu_ids(settings))


@pytest.fixture
def client(settings: Settings) -> Iterator[Client]:
    with emptied_client(settings) as client:
        yield client
    check_nothing_runs(Path(settings.home) / "jobs")
