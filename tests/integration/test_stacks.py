"""`stacks` on real ranks: the one that is missing in a collective call is named, and nobody is harmed."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from mpijob import Client, Job, Phase
from mpijob.backends.local import stacks
from mpijob.model import Code, Resources, StackReport
from mpijob.model.status.stacks import Lack, Means

from .support import PATIENCE, a_job, eventually, running

pytestmark = [pytest.mark.engine, pytest.mark.req("C-exec", "Q13")]

PROGRAM = """
import os, time
from mpi4py import MPI

def load_batch():
    while not os.path.exists("go"):
        time.sleep(0.05)

if MPI.COMM_WORLD.rank == 1:
    load_batch()
MPI.COMM_WORLD.Barrier()
"""


def look(job: Job, wanted: str) -> StackReport:
    """Return the report once its summary says what it must: ranks take a moment to get there."""

    def found() -> list[StackReport]:
        return [report for report in (job.stacks(),) if wanted in report.summary]

    return eventually(found, wanted, PATIENCE)[0]


def test_the_rank_that_keeps_all_others_waiting_is_named_and_all_go_on_afterwards(
    client: Client, tmp_path: Path, family: str
) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text(PROGRAM)
    job = running(
        client,
        a_job(
            "stuck",
            workers=2,
            slots=2,
            mpi=family,
            command=("python", "train.py"),
            code=Code(path=str(folder)),
            resources=Resources(cpu="500m", memory="512Mi"),
        ),
    )
    report = look(job, "ranks 0, 2-3 in MPI_Barrier, rank 1 in load_batch (train.py:7)")
    assert {stack.means for stack in report.stacks} == {Means.PYSPY}
    assert "rank 1 has not reached MPI_Barrier, where ranks 0, 2-3 wait" in report.remarks[0]
    assert job.stacks(ranks=(1,)).groups[0].ranks == (1,)
    (Path(client.settings.home) / "jobs" / job.ref.uid / "work" / "go").touch()
    assert job.wait(PATIENCE).phase is Phase.SUCCEEDED


def test_a_native_program_is_seen_by_gdb_where_there_is_one_else_by_the_kernel(client: Client) -> None:
    job = running(client, a_job("native", "exec sleep 300"))
    report = look(job, "nanosleep")
    (means,) = {stack.means for stack in report.stacks}
    assert means is (Means.GDB if shutil.which("gdb") else Means.PROC)
    assert [stack.program for stack in report.stacks] == ["sleep", "sleep"]


def test_a_visitor_who_goes_away_in_the_middle_does_not_take_the_worker_along(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = running(client, a_job("host", "while [ ! -e go ]; do sleep 0.05; done"))
    monkeypatch.setattr(stacks, "TIMEOUT_SECONDS", 0.0)
    assert {stack.lack for stack in job.stacks().stacks} == {Lack.TOO_SLOW}
    monkeypatch.undo()
    look(job, "ranks 0-1")
    (Path(client.settings.home) / "jobs" / job.ref.uid / "work" / "go").touch()
    assert job.wait(PATIENCE).phase is Phase.SUCCEEDED


def test_what_a_visitor_uses_is_not_taken_for_the_workers_own(client: Client) -> None:
    job = running(client, a_job("host", "while [ ! -e go ]; do sleep 0.05; done"))
    hungry = f"exec {sys.executable} -c 'import time; x = bytearray(200 << 20); time.sleep(1.2)'"
    assert job.execute(("sh", "-c", hungry), worker=1) == 0
    (Path(client.settings.home) / "jobs" / job.ref.uid / "work" / "go").touch()
    assert job.wait(PATIENCE).phase is Phase.SUCCEEDED
