"""A hundred jobs at once, with real ranks that compute together, on a machine that says it has the room."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest

from mpijob import Client, Job, Phase
from mpijob.model import Code, Resources
from mpijob.settings import Settings

from .support import a_job, eventually, said

pytestmark = pytest.mark.engine

JOBS = 100
PATIENCE = 300.0
SUM = """
import sys, time
from pathlib import Path
from mpi4py import MPI

world = MPI.COMM_WORLD
print(world.allreduce((world.rank + 1) * int(sys.argv[1])), flush=True)
while not Path(sys.argv[2]).exists():
    time.sleep(0.2)
world.Barrier()
"""


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return msgspec.structs.replace(settings, cores=1000.0, memory="1000Gi")


def has_computed(job: Job) -> bool:
    state = job.state()
    assert not state.phase.final, (state.message, state.findings)
    return bool(said(job).get(1))


@pytest.mark.req("C-100", "NFR-006", "SC-007")
def test_a_hundred_jobs_compute_at_once_and_each_has_its_own_result(client: Client, tmp_path: Path) -> None:
    go = tmp_path / "go"
    jobs = [
        client.submit(
            a_job(
                f"one-{number}",
                command=(sys.executable, "sum.py", str(number), str(go)),
                code=Code(files={"sum.py": SUM}),
                resources=Resources(cpu="100m", memory="128Mi"),
            )
        )
        for number in range(JOBS)
    ]
    eventually(lambda: all(has_computed(job) for job in jobs), "all have computed", PATIENCE)
    assert {job.state().phase for job in jobs} == {Phase.RUNNING}
    go.touch()
    for number, job in enumerate(jobs):
        assert job.wait(PATIENCE).phase is Phase.SUCCEEDED
        assert said(job) == {rank: [str(3 * number)] for rank in range(2)}
