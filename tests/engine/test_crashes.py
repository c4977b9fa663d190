"""Programs that go wrong by themselves: no hang, the true rank and cause, nothing left running."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpijob import Client, Phase
from mpijob.model import Code, Resources

from .support import a_job, check_nothing_runs, ended

pytestmark = pytest.mark.engine

ROOMY = Resources(cpu="500m", memory="512Mi")
WORLD = "import os, sys, time\nfrom mpi4py import MPI\nworld = MPI.COMM_WORLD\n"
CRASHES = {
    "exception": ("if world.rank == 1: raise ValueError('no such batch')\nworld.barrier()", "PYTHON_EXCEPTION"),
    "exit-1": ("if world.rank == 1: os._exit(1)\nworld.barrier()", "RANK_EXIT"),
    "abort": ("if world.rank == 1: world.Abort(42)\nworld.barrier()", "MPI_ABORT"),
    "segfault": ("import ctypes\nif world.rank == 1: ctypes.string_at(0)\nworld.barrier()", "SEGFAULT"),
    "no-finalize": ("if world.rank == 1: os._exit(0)\nworld.barrier()", "NO_FINALIZE"),
}


@pytest.mark.req("SC-005", "C-top10", "AC3", "B-story4")
@pytest.mark.parametrize("how", CRASHES)
def test_a_rank_that_goes_wrong_ends_the_others_that_wait_in_mpi(client: Client, family: str, how: str) -> None:
    script, code = CRASHES[how]
    job = a_job("crash", mpi=family, command=("python", "crash.py"), resources=ROOMY,
                code=Code(files={"crash.py": WORLD + script}), deadline_seconds=20.0)  # fmt: skip
    state = ended(client, job)
    first = state.findings[0]
    assert (state.phase, first.code, first.rank, first.worker) == (Phase.FAILED, code, 1, 1)
    check_nothing_runs(Path(client.settings.home) / "jobs" / state.ref.uid)


@pytest.mark.req("UC1-AF2", "B-story4")
def test_a_worker_over_its_memory_limit_is_ended_and_named(client: Client) -> None:
    script = 'import os, time\nif os.environ["MPIJOB_RANK"] == "1": hog = b"x" * (300 << 20)\ntime.sleep(300)'
    job = a_job("hog", command=("python3", "hog.py"), code=Code(files={"hog.py": script}))
    state = ended(client, job)
    first = state.findings[0]
    assert (state.phase, first.code, first.worker) == (Phase.FAILED, "MEMORY_LIMIT", 1)
    assert (state.workers[1].memory_bytes or 0) > 128 << 20


@pytest.mark.parametrize(
    ("fault", "code"),
    [("refuse-start", "CONNECTION_REFUSED"), ("drop-name", "UNKNOWN_HOST")],
)
def test_a_worker_that_cannot_be_reached_is_named(client: Client, family: str, fault: str, code: str) -> None:
    state = ended(client, a_job("lonely", mpi=family, labels={f"fault.mpijob/{fault}": "1"}))
    assert (state.phase, state.findings[0].code, state.findings[0].worker) == (Phase.FAILED, code, 1)
