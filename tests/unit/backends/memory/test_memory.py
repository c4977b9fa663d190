"""The memory engine beyond the promises: scripts, labels, quotas, virtual time."""

from __future__ import annotations

import time

import pytest

from mpijob import Client, JobFailed, MPIJob, Phase
from mpijob.backends.memory import MemoryBackend, Outcome, Script
from mpijob.backends.memory.shell_sim import simulate
from mpijob.errors import InvalidJob, QuotaExceeded
from mpijob.model import Amounts, Identity, Program, Quota, Retry
from mpijob.settings import Settings


def a_client(**options: object) -> Client:
    return Client(MemoryBackend(**options), settings=Settings())  # type: ignore[arg-type]  # passed through


def a_job(name: str = "job", **fields: object) -> MPIJob:
    return MPIJob(**{"name": name, "workers": 2, "command": ("train",), **fields})  # type: ignore[arg-type]  # builder


def test_an_unknown_program_says_nothing_and_succeeds() -> None:
    client = a_client()
    job = client.run(a_job())
    assert (job.phase, list(job.logs())) == (Phase.SUCCEEDED, [])


def test_waiting_takes_no_real_time() -> None:
    client = a_client(script=Script(default=Outcome(seconds=3_600)))
    begun = time.monotonic()
    state = client.run(a_job()).last
    assert (state.finished or 0) - (state.started or 0) > 3_600
    assert time.monotonic() - begun < 20


def test_a_script_decides_by_name_how_a_job_ends() -> None:
    script = Script(
        jobs={"oom-*": Outcome(exit_code=137, worker=1, lines=("loading {rank}/{world} on {worker}",))}
    )
    client = a_client(script=script)
    client.run(a_job("fine"))
    with pytest.raises(JobFailed, match="worker 1 failed: rank 1 ended with exit code 137"):
        client.run(a_job("oom-7"))
    assert [line.text for line in client.logs("oom-7", ranks=(1,))] == [b"loading 1/2 on 1"]


@pytest.mark.parametrize(
    ("label", "phase"),
    [("succeeds", Phase.SUCCEEDED), ("fails", Phase.FAILED), ("fails-3-on-0", Phase.FAILED)],
)
def test_a_label_decides_how_a_job_ends(label: str, phase: Phase) -> None:
    client = a_client()
    job = client.submit(a_job(labels={"memory.mpijob/outcome": label}))
    assert job.wait(60).phase is phase


def test_a_job_that_hangs_runs_until_it_is_cancelled() -> None:
    client = a_client()
    job = client.submit(a_job(labels={"memory.mpijob/outcome": "hangs"}))
    job.wait(60, {Phase.RUNNING})
    client.backend.pause(1e6)
    assert job.phase is Phase.RUNNING
    assert job.cancel().phase is Phase.CANCELLED


def test_a_label_that_is_no_outcome_is_refused() -> None:
    with pytest.raises(InvalidJob, match="explodes"):
        a_client().submit(a_job(labels={"memory.mpijob/outcome": "explodes"}))


def test_an_outcome_can_fail_only_at_first() -> None:
    client = a_client(script=Script(default=Outcome(exit_code=1, attempts=1)))
    job = client.run(a_job(retry=Retry(limit=3, backoff_seconds=5)))
    assert (job.last.attempt, job.last.findings) == (2, ())


def test_backoff_between_attempts_grows() -> None:
    client = a_client(script=Script(default=Outcome(exit_code=1)))
    job = client.submit(a_job(retry=Retry(limit=2, backoff_seconds=10, factor=3)))
    job.wait(10_000)
    failed = [event.time for event in job.events() if event.reason == "Failed"]
    again = [event.time for event in job.events() if event.reason == "GangScheduled"][1:]
    assert [round(b - a) for a, b in zip(failed, again, strict=False)] == [10, 30]


def test_a_quota_holds_back_its_own_namespace_only() -> None:
    client = a_client(quotas={"small": Quota("small", jobs=1)})
    hangs = {"memory.mpijob/outcome": "hangs"}
    client.submit(a_job("one", namespace="small", labels=hangs))
    held = client.submit(a_job("two", namespace="small", labels=hangs))
    other = client.submit(a_job("three", namespace="large", labels=hangs))
    assert other.wait(60, {Phase.RUNNING}).phase is Phase.RUNNING
    assert held.state().phase is Phase.QUEUED
    assert "1/1" in held.state().waiting_for


def test_more_than_the_quota_is_refused_with_its_numbers() -> None:
    client = a_client(quotas={"team": Quota("team", gpus=4)})
    with pytest.raises(QuotaExceeded, match=r"8 GPUs.*4"):
        client.submit(a_job(namespace="team", slots=4, resources={"gpu": 4}))


def test_a_waiting_job_says_what_it_waits_for() -> None:
    client = a_client(capacity=Amounts(cores=3, memory_bytes=2**34))
    client.submit(a_job("one", labels={"memory.mpijob/outcome": "hangs"}))
    assert client.submit(a_job("two")).state().waiting_for.startswith("Waiting for 1.2 CPU cores")


def test_several_programs_share_one_world() -> None:
    programs = (Program(ranks=1, command=("echo", "master")), Program(ranks=3, command=("echo", "solver")))
    client = a_client()
    job = client.run(MPIJob(name="mpmd", workers=2, slots=2, programs=programs))
    assert [line.text for line in job.logs()] == [b"master", b"solver", b"solver", b"solver"]


def test_the_owner_is_the_user_the_engine_was_made_for() -> None:
    assert a_client(who=Identity("jane")).submit(a_job()).state().owner == "jane"


def test_the_same_jobs_give_the_same_story_every_time() -> None:
    def story() -> list[tuple[float, str, str]]:
        client = a_client(capacity=Amounts(cores=3, memory_bytes=2**34))
        for name in ("a", "b"):
            client.submit(a_job(name))
        client.wait("b", 60)
        return [
            (event.time, event.reason, event.message) for name in ("a", "b") for event in client.events(name)
        ]

    assert story() == story()


@pytest.mark.parametrize(
    ("argv", "lines", "seconds", "code"),
    [
        (("echo", "hi  there"), ["hi  there"], 0.1, 0),
        (("sh", "-c", "echo $R; sleep 2; echo ${R}b; exit 300"), ["7", "7b"], 2.0, 44),
        (("sh", "-c", 'if [ "$R" = 7 ]; then exit 3; fi; echo no'), [], 0.1, 3),
        (("sh", "-c", 'if [ "$R" = 8 ]; then exit 3; fi; echo yes'), ["yes"], 0.1, 0),
        (("false",), [], 0.1, 1),
        (("./train", "--now"), [], 1.0, 0),
    ],
)
def test_small_shell_programs_are_understood(
    argv: tuple[str, ...], lines: list[str], seconds: float, code: int
) -> None:
    part = simulate(argv, {"R": "7"})
    assert ([text for _, text in part.lines], part.ends, part.exit_code) == (lines, seconds, code)
