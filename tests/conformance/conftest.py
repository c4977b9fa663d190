"""The engines that are held to the promises, each small enough that jobs must queue."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mpijob import Client
from mpijob.backends.memory import MemoryBackend
from mpijob.backends.protocol import Backend
from mpijob.model import Amounts
from mpijob.settings import Settings

CORES, MEMORY = 4.0, "16Gi"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        home=str(tmp_path / "home"),
        templates=str(tmp_path / "team"),
        cores=CORES,
        memory=MEMORY,
        gpus=0,
        oversubscribe=False,
    )


@pytest.fixture(params=["memory", pytest.param("local", marks=pytest.mark.engine)])
def backend(request: pytest.FixtureRequest, settings: Settings) -> Backend:
    if request.param == "memory":
        return MemoryBackend(capacity=Amounts(cores=CORES, memory_bytes=16 * 1024**3))
    from mpijob.backends.local import LocalBackend

    return LocalBackend(settings)


@pytest.fixture
def client(backend: Backend, settings: Settings) -> Iterator[Client]:
    with Client(backend, settings=settings) as client:
        yield client
        for state in [*client.jobs(all_namespaces=True)]:
            client.delete(state.ref, grace_period=0)
