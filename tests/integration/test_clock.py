"""The machine's clock jumps by an hour while a job runs: what time decides goes on as before.

The jump is the fault `clock-back` or `clock-forward`: from a moment on, supervisor and workers are shown
another wall clock. The machine's own clock is everybody's and is left alone.
"""

from __future__ import annotations

import time

import pytest

from mpijob import Client, Phase
from mpijob.model import Code, Resources

from .support import a_job, eventually, running, said, succeeded

pytestmark = pytest.mark.engine

WAYS = ("clock-back", "clock-forward")
JUMP_SECONDS = 0.2


@pytest.fixture(params=WAYS)
def jump(request: pytest.FixtureRequest) -> dict[str, str]:
    """The labels of a job in whose life the clock jumps by an hour."""
    return {f"fault.mpijob/{request.param}": f"3600_{JUMP_SECONDS}"}


def test_a_jump_of_the_clock_changes_no_duration_and_no_order(client: Client, jump: dict[str, str]) -> None:
    begun = time.monotonic()
    job = succeeded(
        client, a_job("steady", "echo one; sleep 1.5; echo two", labels=jump, deadline_seconds=30.0)
    )
    took = time.monotonic() - begun
    state = job.state()
    assert 1.5 <= (state.duration_seconds(time.time()) or 0.0) <= took
    assert state.started is not None
    assert state.running is not None
    assert state.finished is not None
    assert state.created <= state.started <= state.running <= state.finished
    times = [event.time for event in job.events()]
    assert times == sorted(times)
    lines = list(job.logs())
    assert [line.text for line in lines] == [b"one", b"one", b"two", b"two"]
    assert all(state.started <= line.time / 1e9 <= state.finished for line in lines)
    assert all(state.started <= sample.time <= state.finished for sample in job.metrics())


def test_a_deadline_counts_seconds_and_not_the_clock(client: Client, jump: dict[str, str]) -> None:
    job = client.submit(a_job("late", "sleep 60", labels=jump, deadline_seconds=1.5, grace_seconds=0.2))
    state = job.wait(30)
    assert (state.phase, state.findings[0].code) == (Phase.FAILED, "DEADLINE_EXCEEDED")
    assert 1.5 <= (state.duration_seconds(time.time()) or 0.0) < 15


def test_the_grace_time_is_given_and_no_more(client: Client, jump: dict[str, str]) -> None:
    script = "trap 'sleep 0.5; echo saved; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    job = running(client, a_job("polite", script, labels=jump))
    _after_the_jump(client, "polite")
    assert job.cancel(10).phase is Phase.CANCELLED
    assert {rank: lines[-1] for rank, lines in said(job).items()} == {0: "saved", 1: "saved"}

    stubborn = running(client, a_job("stubborn", "trap '' TERM; while :; do sleep 0.05; done", labels=jump))
    _after_the_jump(client, "stubborn")
    begun = time.monotonic()
    assert stubborn.cancel(0.5).phase is Phase.CANCELLED
    assert time.monotonic() - begun < 10


def test_memory_is_watched_and_the_worker_named(client: Client, jump: dict[str, str]) -> None:
    script = (
        "import os, time\ntime.sleep(0.6)\n"
        'if os.environ["MPIJOB_RANK"] == "1": hog = b"x" * (300 << 20)\ntime.sleep(300)'
    )
    job = a_job("hog", command=("python3", "hog.py"), code=Code(files={"hog.py": script}), labels=jump)
    state = client.submit(job).wait(30)
    assert (state.phase, state.findings[0].code, state.findings[0].worker) == (
        Phase.FAILED,
        "MEMORY_LIMIT",
        1,
    )


def test_the_first_cause_is_still_the_first(client: Client, jump: dict[str, str]) -> None:
    script = (
        "import time\nfrom mpi4py import MPI\nworld = MPI.COMM_WORLD\ntime.sleep(0.6)\nworld.barrier()\n"
        "if world.rank == 1: raise ValueError('no such batch')\nworld.barrier()"
    )
    job = a_job("first", command=("python", "x.py"), code=Code(files={"x.py": script}), labels=jump,
                resources=Resources(cpu="500m", memory="512Mi"), deadline_seconds=30.0)  # fmt: skip
    first = client.submit(job).wait(30).findings[0]
    assert (first.code, first.rank, first.worker) == ("PYTHON_EXCEPTION", 1, 1)


def _after_the_jump(client: Client, name: str) -> None:
    """Wait until the supervisor has measured something since the jump."""
    eventually(lambda: client.metrics(name), "the workers were measured, more than a second after the start")
