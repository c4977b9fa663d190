"""What the Slurm tests share: they run as a user on the login node of the Slurm test bed (`make test-slurm`).

Without it a test fails; it never passes by skipping. What only root can do to the cluster is asked of the bed
(`testbed.slurm.control`), and whoever breaks something brings it back.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from testbed.slurm import control

from mpijob import Client
from mpijob.backends.slurm.backend import SlurmBackend
from mpijob.settings import Settings

# two processes of tests may run at once, each on two nodes of its own
PARTITION = "small2" if os.environ.get("PYTEST_XDIST_WORKER") == "gw1" else "small"


@pytest.fixture(scope="session", autouse=True)
def bed() -> None:
    """Fail where these tests run outside the bed."""
    if not os.path.exists(control.SOCKET):
        pytest.fail("no Slurm: run these tests with `make test-slurm`", pytrace=False)


@pytest.fixture
def home() -> Iterator[Path]:
    """Return a directory that login node and nodes share."""
    path = Path.home() / "tests" / os.urandom(4).hex()
    path.mkdir(parents=True)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def settings(home: Path) -> Settings:
    """Return settings with all of mpijob's state in that directory, for a partition that nobody else uses meanwhile."""
    return Settings(home=str(home / "state"), templates=str(home / "templates"), engine=f"slurm:{PARTITION}")


@pytest.fixture
def backend(settings: Settings) -> SlurmBackend:
    """Return the engine, for the partition of two nodes with four CPUs each."""
    return SlurmBackend(settings, settings.engine)


@pytest.fixture
def client(backend: SlurmBackend, settings: Settings) -> Iterator[Client]:
    """Return a client; its jobs are taken away at the end, those of plain sbatch by whoever submitted them."""
    with Client(backend, settings=settings) as client:
        yield client
        for state in [*client.jobs(all_namespaces=True)]:
            if not state.ref.uid.startswith("slurm-"):
                client.delete(state.ref, grace_period=0)
