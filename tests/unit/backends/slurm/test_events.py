"""What happened to a job, in the order of time: from its journals, its owner's acts, and its end."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.slurm_support import BEGIN, FakeHost, Submitted, a_job, a_plan, ended, row

from mpijob.backends.slurm.jobs import derive, events
from mpijob.errors import Severity
from mpijob.formats.slurm.queries import Row
from mpijob.model import Event, Retry


@pytest.fixture
def job(tmp_path: Path) -> Submitted:
    return Submitted(FakeHost(tmp_path))


def of(job: Submitted, slurm: Row | None) -> tuple[Event, ...]:
    return events.of(job.files, derive.state(job.seen(slurm))[0])


def reasons(job: Submitted, slurm: Row | None) -> list[str]:
    return [event.reason for event in of(job, slurm)]


def test_a_job_that_waits_was_submitted_and_no_more(job: Submitted) -> None:
    (event,) = of(job, row(T="PENDING", r="Priority"))
    assert (event.reason, event.time, event.sequence) == ("Submitted", BEGIN, 1)
    assert "67" in event.message


def test_the_events_of_a_job_that_succeeds_are_in_order_and_numbered(job: Submitted) -> None:
    job.began()
    job.left(0, 0)
    found = of(job, ended())
    assert [event.reason for event in found] == [
        "Submitted", "GangScheduled", "WorkersReady", "WorldProved", "Running", "Succeeded",
    ]  # fmt: skip
    assert [event.sequence for event in found] == [1, 2, 3, 4, 5, 6]
    assert [event.time for event in found] == sorted(event.time for event in found)
    assert "n1, n2" in found[1].message
    assert found[-1].time == BEGIN + 66


def test_a_failure_is_an_error_and_names_the_cause(job: Submitted) -> None:
    job.began()
    job.left(3, 0)
    last = of(job, ended(state="FAILED"))[-1]
    assert (last.reason, last.severity, last.attempt) == ("Failed", Severity.ERROR, 1)
    assert "rank 0" in last.message


def test_each_attempt_has_its_own_events_and_says_why_there_is_another(tmp_path: Path) -> None:
    job = Submitted(FakeHost(tmp_path), a_plan(a_job(retry=Retry(limit=1))))
    job.began()
    job.left(3, 0)
    job.journal("67 retry in=30")
    job.began(attempt=2, at=100)
    found = of(job, row())
    again = ("Retrying", "Requeued", "Running")
    assert [(event.attempt, event.reason) for event in found if event.reason in again] == [
        (1, "Running"), (1, "Retrying"), (2, "Requeued"), (2, "Running"),
    ]  # fmt: skip
    assert "30 s" in next(event.message for event in found if event.reason == "Retrying")


def test_what_its_owner_asked_for_is_told_with_the_attempt_that_ran_then(job: Submitted) -> None:
    job.began()
    job.acted("suspended", at=60)
    job.acted("resumed", at=80)
    job.began(attempt=2, at=100)
    job.acted("nonsense", at=101)
    told = [
        (event.reason, event.attempt) for event in of(job, row()) if event.reason in ("Suspended", "Resumed")
    ]
    assert told == [("Suspended", 1), ("Resumed", 1)]


def test_a_cancelled_job_was_cancelled_once(job: Submitted) -> None:
    job.began()
    job.acted("cancelled", at=60)
    assert reasons(job, row())[-1] == "Cancelled"
    job.journal("60 term")
    job.left(143, 143)
    assert reasons(job, ended(state="CANCELLED by 1000")).count("Cancelled") == 1


def test_a_clock_that_is_off_and_signals_and_kept_nodes_are_told(job: Submitted) -> None:
    job.began()
    job.journal("7 clock ahead=176340000000 skew=-42", node="n2")
    job.journal("30 signal USR1", "70 kept seconds=300")
    found = {event.reason: event for event in of(job, row())}
    assert "n2" in found["ClockSkew"].message
    assert "-42 s" in found["ClockSkew"].message
    assert found["ClockSkew"].severity is Severity.WARNING
    assert "USR1" in found["Signalled"].message
    assert "300 s" in found["Kept"].message
