"""Why, asked of jobs in real pods: the cause, its place in the log, and a fix that mends the next run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.cluster.support import PATIENCE, Place, a_job, a_program, own_place, said

from mpijob import Phase
from mpijob.model import Resources
from mpijob.model.spec import quantity

GREEDY = (
    "import time; from mpi4py import MPI; c = MPI.COMM_WORLD; block = bytearray(c.rank * (200 << 20)); "
    "time.sleep(1); c.barrier()"
)
RAISES = "from mpi4py import MPI; c = MPI.COMM_WORLD; 1 / (1 - c.rank); c.barrier()"
MODEST = Resources(cpu="100m", memory="160Mi")


@pytest.fixture(scope="module")
def place(kubeconfig: Path) -> Iterator[Place]:
    with own_place(kubeconfig, "why") as place:
        yield place


@pytest.mark.req("FR-UI-007", "B-11", "C-timeline", "C-checklist", "UC1-AF2")
def test_a_worker_without_memory_is_explained_and_its_fix_mends_the_copy(place: Place) -> None:
    hungry = place.client.submit(a_program("hungry", GREEDY, resources=MODEST))
    missing = place.client.submit(a_job("no-image", image="mpijob.invalid/none:1", resources=MODEST))
    assert hungry.wait(PATIENCE).phase is Phase.FAILED
    told = hungry.diagnose()
    assert told.first is not None
    assert (told.first.code, told.first.worker) == ("MEMORY_LIMIT", 1)
    assert [step.what for step in told.timeline][-1] == "failed"
    assert {"MPI up", "workers ready"} <= {step.what for step in told.timeline}
    marks = {check.question: check.mark.value for check in told.checklist}
    assert (marks["memory stayed below the limit"], marks["MPI started with 2 ranks"]) == ("no", "yes")
    mended = hungry.clone("mended", with_fix=1)
    assert quantity.parse(mended.spec.resources.memory) > quantity.parse(MODEST.memory)
    first = missing.diagnose().first
    assert first is not None
    assert first.code.startswith("IMAGE_")


@pytest.mark.req("AC3", "C-timeline")
def test_the_place_of_an_exception_opens_the_log_of_its_rank(place: Place) -> None:
    job = place.client.submit(a_program("raises", RAISES, resources=MODEST))
    assert job.wait(PATIENCE).phase is Phase.FAILED
    first = job.diagnose().first
    assert first is not None
    assert first.place is not None
    assert (first.code, first.place.rank) == ("PYTHON_EXCEPTION", 1)
    around = said(job, ranks=(1,), since=first.place.time - 1, until=first.place.time + 1)
    assert any("ZeroDivisionError" in line for line in around[1])
