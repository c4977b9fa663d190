"""Gangs, order, quotas, GPUs, retries, deadlines, grace, suspension: what the queue promises, with real jobs."""

from __future__ import annotations

import re
import time
from pathlib import Path

import msgspec
import pytest

from mpijob import Client, Job, JobState, Phase
from mpijob.backends.local import LocalBackend
from mpijob.cli.render import job_table
from mpijob.errors import QuotaExceeded
from mpijob.model import Resources, Retry, Signal
from mpijob.settings import QuotaSetting, Settings

from .support import PATIENCE, a_job, ended, eventually, running, said, succeeded

pytestmark = pytest.mark.engine

BIG = Resources(cpu="1900m", memory="128Mi")  # two of these fill the four cores of the test's machine
SMALL = Resources(cpu="900m", memory="128Mi")
GPUS_SEEN = 'echo "$CUDA_VISIBLE_DEVICES"; while [ ! -e go ]; do sleep 0.05; done'


@pytest.fixture
def settings(settings: Settings) -> Settings:
    quotas = {"tight": QuotaSetting(cpu=2.5, jobs=1)}
    return msgspec.structs.replace(settings, oversubscribe=False, gpus=4, quotas=quotas)


def started(state: JobState) -> float:
    assert state.started is not None
    return state.started


def work_of(client: Client, name: str) -> Path:
    return Path(client.settings.home) / "jobs" / client.state(name).ref.uid / "work"


@pytest.mark.req("FR-028", "R7", "E-gang")
def test_a_large_job_is_not_overtaken_by_small_ones_that_would_fit(client: Client) -> None:
    first = running(client, a_job("first", "sleep 300", resources=SMALL))
    large = client.submit(a_job("large", resources=BIG))
    small = [client.submit(a_job(f"small-{n}", workers=1, resources=SMALL)) for n in range(3)]
    assert [job.state().phase for job in (large, *small)] == [Phase.QUEUED] * 4
    first.cancel(grace_period=0)
    done = [job.wait_for_completion(PATIENCE) for job in (large, *small)]
    assert started(done[0]) < min(started(state) for state in done[1:])


def test_a_wait_is_estimated_by_earlier_runs_of_the_same_command_else_told_by_the_deadlines_or_not_at_all(
    client: Client,
) -> None:
    succeeded(client, a_job("other", "true", resources=BIG))  # another command: tells nothing
    bounded = running(
        client, a_job("bounded", "sleep 300", resources=BIG, deadline_seconds=60.0, grace_seconds=10.0)
    )
    next_one = a_job("next", "sleep 3", resources=BIG)
    plan = client.plan(next_one)
    assert (plan.starts_now, plan.wait_estimate_seconds) == (False, None)
    (starts,) = [line for line in job_table.plan_lines(plan) if line.startswith("Starts")]
    assert starts.endswith("when capacity is free")
    (notice,) = [one for one in plan.notices if one.code == "WILL_WAIT"]
    assert re.search(r"It may start within (?:6\d|70) seconds", notice.message)
    waiting = client.submit(next_one)
    assert waiting.state().wait_estimate_seconds is None
    bounded.cancel(grace_period=0)
    took = waiting.wait_for_completion(PATIENCE)
    again = running(client, a_job("again", "sleep 3", resources=BIG))
    estimate = client.plan(a_job("last", resources=BIG)).wait_estimate_seconds
    again.cancel(grace_period=0)
    assert estimate is not None
    assert took.finished is not None
    assert 0.0 < estimate <= took.finished - started(took)


@pytest.mark.req("FR-028")
def test_among_equals_the_owner_who_holds_least_comes_first(client: Client) -> None:
    running(client, a_job("busy", "sleep 300", owner="greedy", workers=1, resources=SMALL))
    block = running(client, a_job("block", "sleep 300", owner="other", resources=SMALL))
    more = client.submit(a_job("more", owner="greedy", resources=SMALL))
    fair = client.submit(a_job("fair", owner="modest", resources=SMALL))
    block.cancel(grace_period=0)
    assert started(fair.wait_for_completion(PATIENCE)) < started(more.wait_for_completion(PATIENCE))


@pytest.mark.req("FR-028")
def test_a_namespace_at_its_quota_waits_and_others_go_on(client: Client) -> None:
    held = running(client, a_job("one", "sleep 300", namespace="tight", resources=SMALL))
    succeeded(client, a_job("free", workers=1, resources=SMALL))
    with pytest.raises(QuotaExceeded, match=r"2\.5"):
        client.submit(a_job("too-much", namespace="tight", resources=BIG))
    next_one = client.submit(a_job("two", namespace="tight", resources=SMALL))
    held.cancel(grace_period=0)
    assert next_one.wait_for_completion(PATIENCE).phase is Phase.SUCCEEDED
    assert started(next_one.state()) >= (held.state().finished or 0.0)


@pytest.mark.req("R6", "FR-003")
def test_every_rank_sees_its_own_gpu_and_two_jobs_never_share_one(client: Client) -> None:
    one = Resources(cpu="400m", memory="128Mi", gpu=2)
    two = Resources(cpu="400m", memory="128Mi", gpu=1)
    first = client.submit(a_job("first", GPUS_SEEN, workers=1, slots=2, resources=one))
    second = client.submit(a_job("second", GPUS_SEEN, workers=2, resources=two))

    def both_speak(job: Job) -> bool:
        state = job.state()
        assert state.finished is None, f"{state.message}: {state.findings}"
        return len(said(job)) == len(state.ranks) == 2

    for job in (first, second):
        eventually(lambda job=job: both_speak(job), "both ranks have said their GPUs")  # type: ignore[misc]  # bound now
    seen = [lines[0] for job in (first, second) for _, lines in sorted(said(job).items())]
    assert sorted(seen) == ["0", "1", "2", "3"]
    assert [rank.gpus for rank in first.state().ranks] == [(seen[0],), (seen[1],)]
    waiting = client.submit(a_job("third", workers=1, resources=two))
    assert waiting.state().phase is Phase.QUEUED
    for job in (first, second):
        (work_of(client, job.name) / "go").touch()
    assert waiting.wait_for_completion(PATIENCE).phase is Phase.SUCCEEDED


def test_a_job_that_asks_for_no_gpu_sees_none(client: Client) -> None:
    job = succeeded(client, a_job("none", 'echo "<$CUDA_VISIBLE_DEVICES>"', resources=SMALL))
    assert said(job) == {0: ["<>"], 1: ["<>"]}


@pytest.mark.req("Q8", "PMV-005", "B-artifacts")
def test_a_retry_backs_off_counts_and_keeps_the_logs_and_files_of_every_attempt(
    client: Client, tmp_path: Path
) -> None:
    script = (
        'echo "attempt $MPIJOB_ATTEMPT"; ls checkpoint 2>/dev/null; touch checkpoint; '
        'echo "$MPIJOB_ATTEMPT" >"$MPIJOB_OUTPUT/model"; [ "$MPIJOB_ATTEMPT" = 3 ]'
    )
    job = client.submit(a_job("stubborn", script, workers=1, retry=Retry(limit=2, backoff_seconds=0.2)))
    state = job.wait_for_completion(PATIENCE)
    assert (state.attempt, state.attempts_allowed) == (3, 3)
    assert [line.text.decode() for line in job.logs(ranks=(0,))] == [
        "attempt 1", "attempt 2", "checkpoint", "attempt 3", "checkpoint"]  # fmt: skip
    assert next(line.text for line in job.logs(attempt=2, ranks=(0,))) == b"attempt 2"
    assert [(file.path, file.attempt) for file in client.artifacts("stubborn")] == [
        ("attempt-1/model", 1), ("attempt-2/model", 2), ("attempt-3/model", 3), ("checkpoint", 0)]  # fmt: skip
    client.fetch("stubborn", str(tmp_path), ("attempt-2/model",))
    assert (tmp_path / "attempt-2/model").read_text() == "2\n"
    times = [event.time for event in job.events() if event.reason in ("Retrying", "GangScheduled")]
    assert times[2] - times[1] >= 0.2
    assert times[4] - times[3] >= 0.4


def test_a_job_that_never_succeeds_fails_after_its_last_attempt(client: Client) -> None:
    state = ended(client, a_job("hopeless", "exit 3", workers=1, retry=Retry(limit=1, backoff_seconds=0.05)))
    assert (state.phase, state.attempt) == (Phase.FAILED, 2)


@pytest.mark.req("UC3-AF1")
def test_before_the_deadline_every_rank_gets_the_signal_and_time_to_write(
    client: Client, family: str
) -> None:
    script = 'trap "echo saved > ckpt.$MPIJOB_RANK; exit 0" USR1; echo up; while :; do sleep 0.05; done'
    job = a_job(
        "late", script, mpi=family, deadline_seconds=3.0, signal=Signal(name="USR1", seconds_before=2.0)
    )
    ended(client, job)
    written = sorted(path.name for path in work_of(client, "late").glob("ckpt.*"))
    assert written == ["ckpt.0", "ckpt.1"]
    assert "Signalled" in [event.reason for event in client.events("late")]


def test_ranks_that_ignore_the_signal_before_the_deadline_are_ended_at_the_deadline(
    client: Client, family: str
) -> None:
    script = 'trap "" USR1; echo up; for i in $(seq 120); do sleep 0.05; done; echo finished'
    early = Signal(name="USR1", seconds_before=1.0)
    job = a_job("deaf", script, mpi=family, deadline_seconds=2.0, signal=early, grace_seconds=20.0)
    state = ended(client, job)
    assert (state.phase, state.reason) == (Phase.FAILED, "DeadlineExceeded")
    assert "finished" not in [line for lines in said(client.get("deaf")).values() for line in lines]
    assert state.finished is not None
    assert state.started is not None
    assert state.finished - state.started < 5.0


def test_ranks_that_end_well_only_when_they_are_told_to_at_the_deadline_have_not_succeeded(
    client: Client,
) -> None:
    script = 'trap "echo saved; exit 0" USR1; echo up; while :; do sleep 0.05; done'
    job = a_job("late", script, deadline_seconds=1.5, signal=Signal(name="USR1"), grace_seconds=20.0)
    state = ended(client, job)
    assert (state.phase, state.reason, state.launcher_exit_code) == (Phase.FAILED, "DeadlineExceeded", 0)
    (late,) = state.findings
    assert "1.5 s" in late.message
    assert "2 ranks exited with 0 only after the termination signal" in late.message


@pytest.mark.req("FR-RES-004", "B-8")
def test_cancelling_gives_a_rank_its_grace_and_no_more(client: Client, family: str) -> None:
    script = 'trap "sleep 0.5; echo saved; exit 0" TERM; echo up; while :; do sleep 0.05; done'
    job = running(client, a_job("polite", script, mpi=family))
    eventually(lambda: len(said(job)) == 2, "both ranks are up")
    assert job.cancel(grace_period=5).phase is Phase.CANCELLED
    assert [(rank, lines[0], lines[-1]) for rank, lines in sorted(said(job).items())] == [
        (0, "up", "saved"), (1, "up", "saved")]  # fmt: skip


@pytest.mark.req("FR-RES-004", "B-8")
def test_a_rank_that_ignores_the_signal_is_killed_after_the_grace(client: Client, family: str) -> None:
    job = running(
        client, a_job("deaf", 'trap "" TERM INT; echo up; while :; do sleep 0.05; done', mpi=family)
    )
    eventually(lambda: len(said(job)) == 2, "both ranks are up")
    asked = time.time()
    state = job.cancel(grace_period=0.5)
    assert state.phase is Phase.CANCELLED
    assert state.finished is not None
    assert 0.4 < state.finished - asked < 8


def test_a_suspended_job_frees_its_place_and_runs_again_in_the_same_directory(client: Client) -> None:
    script = "if [ -e been ]; then echo again; else touch been; echo first; sleep 300; fi"
    job = running(client, a_job("rests", script, workers=1, resources=BIG))
    eventually(lambda: said(job), "it has begun")
    assert job.suspend().phase is Phase.SUSPENDED
    succeeded(client, a_job("other", resources=BIG))
    job.resume()
    state = job.wait_for_completion(PATIENCE)
    assert state.attempt == 2
    assert [line.text for line in job.logs() if line.stream == "stdout"] == [b"first", b"again"]


def test_a_job_that_is_cancelled_at_rest_is_told_so(client: Client) -> None:
    job = running(client, a_job("rests", "sleep 300", workers=1))
    held = job.suspend().duration_seconds(0.0)
    time.sleep(1.0)
    state = job.cancel()
    assert state.message == "the job was cancelled while it was suspended"
    assert state.duration_seconds(time.time()) == held, "what it did not hold is not counted"
    assert (state.finished or 0.0) >= (state.released or 0.0) + 1.0


def test_two_clients_of_one_home_share_one_queue(client: Client) -> None:
    running(client, a_job("mine", "sleep 300", resources=BIG))
    with Client(LocalBackend(client.settings), settings=client.settings) as other:
        theirs = other.submit(a_job("theirs", resources=BIG))
        assert theirs.state().queue_position == 1
        client.cancel("mine", 0)
        assert theirs.wait_for_completion(PATIENCE).phase is Phase.SUCCEEDED
