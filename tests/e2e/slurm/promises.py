"""The place of the promises that every engine keeps, on a real Slurm: two nodes of four CPUs each, to itself."""

from __future__ import annotations

import pytest
from tests.conformance import builders
from tests.e2e.slurm.conftest import PARTITION


@pytest.fixture(autouse=True)
def place(monkeypatch: pytest.MonkeyPatch) -> builders.Place:
    """Make the jobs as large as the partition `small` wants them: a quarter of a CPU cannot be asked for."""
    monkeypatch.setattr(builders.place, "millicores", 8000)
    monkeypatch.setattr(builders.place, "queue", PARTITION)
    monkeypatch.setattr(builders.place, "batch_system", True)
    return builders.place
