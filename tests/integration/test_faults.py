"""Whatever is killed, stopped or refused: the job fails soon, says what and where, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mpijob import Client, Job, JobState, Phase
from mpijob.backends.local import LocalBackend
from mpijob.model import Code, Resources, Retry
from mpijob.settings import Settings

from . import sight
from .support import PATIENCE, a_job, check_nothing_runs, eventually, private_dirs, said

pytestmark = pytest.mark.engine

SOON = 10.0  # the promise is 5 s; a machine that runs other tests beside this one gets twice that
ROOMY = Resources(cpu="500m", memory="512Mi")
WAITING_IN_MPI = """
import time
from mpi4py import MPI
world = MPI.COMM_WORLD
print("in", flush=True)
while True:
    world.allreduce(1)
    time.sleep(0.01)
"""
Find = Callable[[Path, str, int], int]


def in_mpi(client: Client, family: str, script: str = WAITING_IN_MPI, **fields: Any) -> Job:
    """Return a job whose two ranks, on two workers, are in MPI now."""
    job = client.submit(
        a_job("victim", mpi=family, command=("python", "in.py"), code=Code(files={"in.py": script}),
              resources=ROOMY, **fields)
    )  # fmt: skip
    eventually(lambda: len(said(job)) == 2, "both ranks are in MPI", PATIENCE)
    return job


def strike(client: Client, job: Job, pid: int, number: signal.Signals = signal.SIGKILL) -> JobState:
    """Return how the job ended after a signal, which must be soon and without leftovers."""
    struck = time.time()
    os.kill(pid, number)
    state = job.wait(SOON)
    assert state.finished is not None
    assert state.finished - struck < SOON
    check_nothing_left(client, job)
    return state


def check_nothing_left(client: Client, job: Job) -> None:
    check_nothing_runs(Path(client.settings.home) / "jobs" / job.ref.uid)
    made = private_dirs(client, job)
    eventually(lambda: not any(map(os.path.lexists, made)), f"{made} are gone")


def check_no_shared_memory_is_left(mapped: set[str]) -> None:
    """Whatever a job's ranks shared is gone, also where it was not in a /dev/shm of the job's own."""
    eventually(lambda: mapped.isdisjoint(os.listdir("/dev/shm")), f"none of {mapped} is left in /dev/shm")


@pytest.mark.req("SC-005", "A-edge-worker", "FR-003")
@pytest.mark.parametrize(
    ("find", "number", "code", "worker"),
    [
        pytest.param(sight.worker, signal.SIGKILL, "WORKER_LOST", 1, id="worker"),
        pytest.param(sight.worker, signal.SIGSTOP, "WORKER_LOST", 1, id="silent-worker"),
        pytest.param(sight.rank, signal.SIGKILL, "RANK_KILLED", 1, id="rank"),
    ],
)
def test_what_is_killed_is_named_soon_and_nothing_is_left(
    client: Client, family: str, find: Find, number: signal.Signals, code: str, worker: int
) -> None:
    job = in_mpi(client, family)
    mapped = sight.shared_memory(Path(client.settings.home), job.ref.uid)
    assert mapped or family != "mpich", "there is something to leave"
    state = strike(client, job, find(Path(client.settings.home), job.ref.uid, 1), number)
    assert (state.phase, state.findings[0].code, state.findings[0].worker) == (Phase.FAILED, code, worker)
    assert [w.phase for w in state.workers] == [Phase.CANCELLED, Phase.FAILED]
    check_no_shared_memory_is_left(mapped)


@pytest.mark.req("SC-005", "A-edge-worker", "FR-003")
def test_a_killed_daemon_of_a_node_is_named(settings: Settings, family: str) -> None:
    settings = msgspec.structs.replace(settings, local_nodes=True)
    with Client(LocalBackend(settings), settings=settings) as client:
        job = in_mpi(client, family)
        state = strike(client, job, sight.daemon(Path(settings.home), job.ref.uid, 1))
    first = state.findings[0]
    assert (state.phase, first.code, first.worker) == (Phase.FAILED, "DAEMON_LOST", 1)
    assert [w.phase for w in state.workers] == [Phase.CANCELLED, Phase.FAILED]


@pytest.mark.req("SC-005")
def test_a_killed_launcher_ends_the_job(client: Client, family: str) -> None:
    job = in_mpi(client, family)
    state = strike(client, job, sight.launcher(Path(client.settings.home), job.ref.uid))
    first = state.findings[0]
    assert (state.phase, first.code, first.worker) == (Phase.FAILED, "LAUNCHER_KILLED", None)


@pytest.mark.req("PMV-005")
@pytest.mark.parametrize(("cause", "attempts"), [("worker_lost", 2), ("preempted", 1)])
def test_a_job_whose_worker_was_killed_is_tried_again_where_it_names_that_cause(
    client: Client, cause: str, attempts: int
) -> None:
    job = a_job("lost", "sleep 60", labels={"fault.mpijob/kill-worker": "1_0.5"}).replace(
        retry=Retry(limit=1, backoff_seconds=0.1, on=(cause,))
    )
    state = client.submit(job).wait(PATIENCE)
    assert (state.phase, state.reason, state.attempt) == (Phase.FAILED, "WorkerLost", attempts)

    def not_retried() -> list[str]:
        return [event.message for event in client.events("lost") if event.reason == "NotRetried"]

    if attempts == 2:
        assert not_retried() == []
    else:  # told once the attempt is settled, shortly after its end is known
        eventually(not_retried, "it is told that the job is not tried again")
        assert not_retried() == ["not retried: retry.on lists preempted, and the cause was WORKER_LOST"]
