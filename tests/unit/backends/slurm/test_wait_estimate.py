"""When waiting jobs start: who waits for a turn, in which order, and how far Slurm's own expectation bounds it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.unit.slurm_support import FakeHost, row, squeue

from mpijob.backends.slurm.client import SlurmClient
from mpijob.backends.slurm.jobs import poll, wait_estimate
from mpijob.backends.slurm.jobs.job_files import JobDirectories
from mpijob.backends.slurm.jobs.poll import Poll
from mpijob.backends.slurm.jobs.wait_estimate import Room, WaitEstimates
from mpijob.formats.slurm.queries import Rows


@pytest.mark.parametrize(
    ("word", "reason", "waits"),
    [
        ("PENDING", "Priority", True),
        ("PENDING", "Resources", True),
        ("PENDING", "None", True),
        ("PENDING", "Dependency", False),
        ("PENDING", "DependencyNeverSatisfied", False),
        ("PENDING", "BeginTime", False),
        ("PENDING", "JobHeldUser", False),
        ("PENDING", "launch failed requeued held", False),
        ("RUNNING", "None", False),
    ],
)
def test_a_job_waits_its_turn_where_it_waits_for_nothing_else(word: str, reason: str, waits: bool) -> None:
    assert wait_estimate.waits_its_turn(row(T=word, r=reason)) is waits


@pytest.mark.parametrize(
    ("word", "holds"),
    [("RUNNING", True), ("CONFIGURING", True), ("SUSPENDED", True), ("PENDING", False), ("COMPLETING", False),
     ("COMPLETED", False), ("HIBERNATING", False)],
)  # fmt: skip
def test_only_a_job_with_nodes_holds_cpus(word: str, holds: bool) -> None:
    assert wait_estimate.holds(row(T=word)) is holds


def test_the_queue_of_a_partition_is_in_slurms_order() -> None:
    waiting = {"%T": "PENDING", "%r": "Priority"}
    rows = Rows(
        squeue(
            {"%A": "10", "%Q": "5", **waiting},
            {"%A": "9", "%Q": "5", **waiting},
            {"%A": "11", "%Q": "50", **waiting},
            {"%A": "12", "%P": "short", **waiting},
            {"%A": "13"},
            {"%A": "14", "%T": "PENDING", "%r": "JobHeldUser"},
        )
    )
    assert [one.number for one in wait_estimate.queue(rows, "main")] == ["11", "9", "10"]


@pytest.mark.parametrize(("held", "free"), [(4, 8), (0, 12), (12, 0), (20, 0)])
def test_idle_cpus_are_counted_on_by_what_the_users_own_jobs_hold_since(held: int, free: int) -> None:
    assert Room(0.0, {"main": 8}, {"main": 4}).free("main", held) == free
    assert Room(0.0, {}, {}).free("main", held) == 0


class Clock:
    """The time as the engine reads it; it passes when a test says so."""

    def __init__(self) -> None:
        self.now = time.time()

    def time(self) -> float:
        """Return the time."""
        return self.now


def test_free_cpus_are_asked_with_an_answer_of_squeue_that_comes_anyway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    for module in (poll, wait_estimate):
        monkeypatch.setattr(module, "time", clock)
    waiting = squeue({"%A": "10", "%T": "PENDING", "%r": "Resources"})
    host = FakeHost(tmp_path / "root", squeue=waiting, sinfo="main|0/8/0/8\n")
    client = SlurmClient(host)
    asked = Poll(client, tmp_path / "poll")
    estimates = WaitEstimates(client, asked, JobDirectories(host))
    for _ in range(240):  # a minute, in which somebody follows a job four times a second
        rows = asked.snapshot().rows
        assert [*estimates.of(rows, ["10"], clock.now)] == ["10"]
        clock.now += 0.25
    assert host.count("squeue") <= 60 / poll.EVERY_SECONDS
    assert 4 <= host.count("sinfo") <= 6
