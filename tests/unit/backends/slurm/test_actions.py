"""Ending, holding and removing jobs: what Slurm is asked, in which order, and what comes of it meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.unit.slurm_support import BEGIN, NUMBER, UID, FakeHost, Submitted, a_job, a_plan, a_reader, squeue

from mpijob.backends.slurm import actions
from mpijob.backends.slurm.actions import Actions
from mpijob.backends.slurm.host import Answer
from mpijob.backends.slurm.jobs.job_reader import JobReader
from mpijob.errors import BackendError, Conflict, InvalidJob, NotFound, WaitTimeout
from mpijob.history.archive_reader import open_archive
from mpijob.model import JobRef, JobState, LogQuery, Phase, Signal
from mpijob.settings import KeepSetting, Settings, history_directory

GONE = Answer(
    1, "", "scancel: error: Kill job error on job id 67: Job/step already completing or completed\n"
)
SILENT = Answer(1, "", "scancel: error: Unable to contact slurm controller (connect failure)\n")
BUSY = Answer(1, "", "Job is pending execution for job 67\n")
WAITS = {"%T": "PENDING", "%r": "Priority", "%N": "", "%S": "N/A"}


class Clock:
    """The time as `actions` reads it: pauses let it pass, and what was planned for then happens."""

    def __init__(self) -> None:
        self.now, self.plans = 0.0, list[tuple[float, Callable[[], None]]]()

    def monotonic(self) -> float:
        """Return the time."""
        return self.now

    def pause(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
        due = [what for when, what in self.plans if when <= self.now]
        self.plans = [plan for plan in self.plans if plan[0] > self.now]
        for what in due:
            what()

    def after(self, seconds: float, what: Callable[[], None]) -> None:
        """Plan something."""
        self.plans.append((self.now + seconds, what))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(actions, "time", clock)
    return clock


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path / "root", squeue=squeue({}), sacct="", scancel="", scontrol="")


@pytest.fixture
def reader(host: FakeHost, tmp_path: Path) -> JobReader:
    return a_reader(host, tmp_path)


@pytest.fixture
def does(reader: JobReader, clock: Clock) -> Actions:
    return Actions(reader, clock.pause)


def a_running(host: FakeHost, **fields: object) -> Submitted:
    job = Submitted(host, a_plan(a_job(**fields)))
    job.began()
    return job


def ended(job: Submitted) -> Callable[[], None]:
    """Return what writes down that the launcher ended, as Slurm wanted."""
    return lambda: job.journal("70 term", "71 end code=143")


def asked(host: FakeHost, *programs: str) -> list[tuple[str, ...]]:
    return [argv for argv in host.asked if argv[0] in programs]


def grace(job: Submitted) -> str:
    return (job.path / "grace").read_text().strip()


# -- cancel ------------------------------------------------------------------------------------
def test_a_running_job_is_cancelled_by_slurm_and_its_end_is_awaited(
    host: FakeHost, does: Actions, clock: Clock
) -> None:
    job = a_running(host, grace_seconds=12)
    clock.after(3, ended(job))
    state = does.cancel(job.files, None)
    assert (state.phase, state.reason) == (Phase.CANCELLED, "Cancelled")
    assert asked(host, "scancel") == [("scancel", NUMBER)]
    assert grace(job) == "12"
    assert [act.verb for act in job.files.acts] == ["cancelled"]
    assert 3 <= clock.now < 4
    assert job.place.folder in host.pushed, "its nodes read the grace time"


def test_the_grace_time_of_the_call_wins(host: FakeHost, does: Actions, clock: Clock) -> None:
    job = a_running(host, grace_seconds=12)
    clock.after(1, ended(job))
    does.cancel(job.files, 2.5)
    assert grace(job) == "2.5"


def test_ranks_get_the_jobs_own_signal_and_time_before_slurm_ends_them(
    host: FakeHost, does: Actions, clock: Clock
) -> None:
    job = a_running(host, grace_seconds=10, signal=Signal(name="USR1"))
    clock.after(4, lambda: job.left(0, 0))
    does.cancel(job.files, None)
    assert asked(host, "scancel") == [("scancel", "--signal=USR1", NUMBER), ("scancel", NUMBER)]
    assert 4 <= clock.now < 5
    assert grace(job) == "0", "it was given already"


@pytest.mark.parametrize("grace_seconds", [0.0, 5.0])
def test_a_job_that_waits_gets_no_signal(
    host: FakeHost, does: Actions, clock: Clock, grace_seconds: float
) -> None:
    host.replies["squeue"] = squeue(WAITS)
    job = Submitted(host, a_plan(a_job(signal=Signal(name="USR1"))))

    def gone(argv: Sequence[str]) -> str:
        host.replies["squeue"] = ""
        return ""

    host.replies["scancel"] = gone
    does.cancel(job.files, grace_seconds)
    assert asked(host, "scancel") == [("scancel", NUMBER)]


def test_a_job_that_has_ended_stays_as_it_ended(host: FakeHost, does: Actions) -> None:
    job = a_running(host)
    job.left(0, 0)
    assert does.cancel(job.files, None).phase is Phase.SUCCEEDED
    assert asked(host, "scancel") == []
    assert job.files.acts == ()


def test_a_job_that_ends_by_itself_meanwhile_has_not_been_cancelled(host: FakeHost, does: Actions) -> None:
    job = a_running(host)

    def late(argv: Sequence[str]) -> Answer:
        job.left(0, 0)
        return GONE

    host.replies["scancel"] = late
    assert does.cancel(job.files, None).phase is Phase.SUCCEEDED


def test_a_job_without_a_number_is_not_cancelled_in_slurm(host: FakeHost, does: Actions) -> None:
    job = Submitted(host, number="")
    assert does.cancel(job.files, None).phase is Phase.FAILED, "who submitted it was ended"
    assert asked(host, "scancel") == []


def test_where_slurm_does_not_answer_nothing_is_written_down(host: FakeHost, does: Actions) -> None:
    job = a_running(host)
    host.replies["scancel"] = SILENT
    with pytest.raises(BackendError) as caught:
        does.cancel(job.files, None)
    assert caught.value.passing
    assert job.files.acts == ()


def test_a_job_that_does_not_end_is_awaited_for_its_grace_time_and_a_little_longer(
    host: FakeHost, does: Actions, clock: Clock
) -> None:
    job = a_running(host)
    assert does.cancel(job.files, 5.0).phase is Phase.RUNNING
    assert 25 <= clock.now < 26


# -- suspend and resume ------------------------------------------------------------------------
def test_a_job_that_waits_is_held(host: FakeHost, does: Actions) -> None:
    host.replies["squeue"] = squeue(WAITS)
    job = Submitted(host)
    assert does.suspend(job.files).phase is Phase.SUSPENDED
    assert asked(host, "scontrol", "scancel") == [("scontrol", "hold", NUMBER)]


def test_a_running_job_goes_back_into_the_queue_and_is_held_there(
    host: FakeHost, does: Actions, clock: Clock
) -> None:
    job = a_running(host)
    clock.after(2, ended(job))
    assert does.suspend(job.files).phase is Phase.SUSPENDED
    assert [argv[1:] for argv in asked(host, "scontrol")] == [
        ("update", f"JobId={NUMBER}", "Requeue=1"),
        ("requeuehold", NUMBER),
    ]
    assert [act.verb for act in job.files.acts] == ["suspended"]


@pytest.mark.parametrize("refused", ["update", "requeuehold"])
def test_a_job_that_slurm_does_not_requeue_is_a_conflict_and_not_noted(
    host: FakeHost, does: Actions, refused: str
) -> None:
    job = a_running(host)
    no = Answer(1, "", "Requested operation is presently disabled for job 67\n")
    host.replies["scontrol"] = lambda argv: no if argv[1] == refused else ""
    with pytest.raises(Conflict, match="presently disabled") as caught:
        does.suspend(job.files)
    assert caught.value.hint
    assert job.files.acts == ()


@pytest.mark.parametrize(
    ("said", "phase"),
    [({"%T": "COMPLETED"}, Phase.SUCCEEDED), ({**WAITS, "%r": "JobHeldUser"}, Phase.SUSPENDED)],
)
def test_a_job_that_ends_while_it_is_suspended_is_where_slurm_then_says(
    host: FakeHost, does: Actions, clock: Clock, tmp_path: Path, said: dict[str, str], phase: Phase
) -> None:
    job = a_running(host)
    clock.after(1, lambda: job.left(0, 0))
    assert does.suspend(job.files).phase is Phase.SUSPENDED
    assert clock.now < 2
    host.replies["squeue"] = squeue(said)
    assert a_reader(host, tmp_path / "later").get(job.ref).phase is phase


def test_a_suspended_job_is_left_alone_and_one_that_has_ended_is_a_conflict(
    host: FakeHost, does: Actions
) -> None:
    host.replies["squeue"] = squeue({**WAITS, "%r": "JobHeldUser"})
    job = Submitted(host)
    job.acted("suspended", at=5)
    assert does.suspend(job.files).phase is Phase.SUSPENDED
    over = Submitted(host, a_plan(a_job(name="over"), uid="bb"), "68")
    over.began()
    over.left(0, 0)
    with pytest.raises(Conflict, match="Succeeded"):
        does.suspend(over.files)
    assert asked(host, "scontrol") == []


def held(host: FakeHost, **fields: object) -> Submitted:
    host.replies["squeue"] = squeue({**WAITS, "%r": "JobHeldUser"})
    job = Submitted(host, a_plan(a_job(**fields)))
    job.acted("suspended", at=5)
    return job


@pytest.mark.parametrize("requeue", [True, False])
def test_a_held_job_is_released_and_is_requeued_by_slurm_only_where_it_asks_for_that(
    host: FakeHost, does: Actions, requeue: bool
) -> None:
    job = held(host, requeue_on_lost_worker=requeue)
    assert does.resume(job.files).phase is Phase.QUEUED
    back = [] if requeue else [("update", f"JobId={NUMBER}", "Requeue=0")]
    assert [argv[1:] for argv in asked(host, "scontrol")] == [("release", NUMBER), *back]
    assert [act.verb for act in job.files.acts] == ["suspended", "resumed"]


def test_a_job_that_is_still_being_cleared_away_is_released_once_that_is_done(
    host: FakeHost, does: Actions, clock: Clock
) -> None:
    job = held(host)
    host.replies["scontrol"] = lambda argv: BUSY if argv[1] == "release" and clock.now < 3 else ""
    does.resume(job.files)
    assert 3 <= clock.now < 4
    host.replies["scontrol"] = lambda argv: BUSY if argv[1] == "release" else ""
    job.acted("suspended", at=1e6)
    with pytest.raises(InvalidJob, match="pending execution"):
        does.resume(job.files)
    assert clock.now < 30


def test_only_a_suspended_job_is_resumed(host: FakeHost, does: Actions) -> None:
    with pytest.raises(Conflict, match="Running"):
        does.resume(a_running(host).files)
    assert asked(host, "scontrol") == []


def test_a_job_that_slurm_has_forgotten_cannot_be_resumed(host: FakeHost, does: Actions) -> None:
    job = held(host)
    host.replies["scontrol"] = Answer(1, "", "scontrol: error: Invalid job id specified for job 67\n")
    with pytest.raises(NotFound):
        does.resume(job.files)
    assert job.files.suspended


# -- remove ------------------------------------------------------------------------------------
@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    keep = KeepSetting(logs_days=1e5, record_days=1e5, accounts_days=1e5)  # the jobs of these tests are old
    return Settings(home=str(tmp_path / "home"), keep={"*": keep})


def remembered(settings: Settings) -> tuple[JobState, list[bytes]]:
    """Return what the archive has of the job: how it ended, and what it said."""
    past, ref = open_archive(history_directory(settings, "slurm")), JobRef("default", "solve", UID)
    assert past is not None
    state = past.state(ref)
    assert state is not None
    return state, [line.text for line in past.logs(ref, LogQuery())]


def test_a_job_that_is_removed_is_remembered_with_what_it_said(
    host: FakeHost, does: Actions, settings: Settings
) -> None:
    job = a_running(host)
    job.left(0, 0)
    (job.path / "a1" / "logs").mkdir()
    (job.path / "a1" / "logs" / "rank-0.log").write_bytes(b"2025-11-17T17:20:06.000000000Z stdout F said\n")
    does.remove(job.ref, None, settings, "slurm")
    assert not job.path.exists()
    assert not (host.root / job.place.claim).exists()
    assert not (host.root / job.place.line).exists()
    state, lines = remembered(settings)
    assert (state.phase, state.world, state.deleted is not None) == (Phase.SUCCEEDED, 2, True)
    assert lines == [b"said"]


def test_by_its_name_the_earlier_jobs_go_along_by_its_uid_it_goes_alone(
    host: FakeHost, does: Actions, settings: Settings
) -> None:
    first = Submitted(host, a_plan(uid="aa"), "60", BEGIN - 100)
    second = Submitted(host, a_plan(uid="bb"), "61", BEGIN - 50)
    third = Submitted(host, a_plan(uid="cc"), "62", BEGIN)
    other = Submitted(host, a_plan(a_job(name="other"), uid="dd"), "63", BEGIN)
    for job in (first, second, third, other):
        job.began()
        job.left(0, 0)
    does.remove(second.ref, None, settings, "slurm")
    assert [job.path.exists() for job in (first, second, third)] == [True, False, True]
    does.remove(JobRef("default", "solve"), None, settings, "slurm")
    assert [job.path.exists() for job in (first, third, other)] == [False, False, True]


def test_a_running_job_is_ended_before_it_is_removed(
    host: FakeHost, does: Actions, clock: Clock, settings: Settings
) -> None:
    job = a_running(host)
    clock.after(2, ended(job))
    does.remove(job.ref, None, settings, "slurm")
    assert asked(host, "scancel") == [("scancel", NUMBER)]
    assert not job.path.exists()


def test_the_files_of_a_job_that_does_not_end_stay(host: FakeHost, does: Actions, settings: Settings) -> None:
    job = a_running(host)
    with pytest.raises(WaitTimeout, match="Running"):
        does.remove(job.ref, 1.0, settings, "slurm")
    assert (job.path / "plan.json").exists()


def test_a_record_that_cannot_be_kept_keeps_nobody_from_deleting(
    host: FakeHost, does: Actions, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = a_running(host)
    job.left(0, 0)
    (tmp_path / "home").write_text("a file")
    does.remove(job.ref, None, Settings(home=str(tmp_path / "home")), "slurm")
    assert not job.path.exists()
    assert "solve" in caplog.text


def test_what_is_not_there_cannot_be_removed(does: Actions, settings: Settings) -> None:
    with pytest.raises(NotFound):
        does.remove(JobRef("default", "nobody"), None, settings, "slurm")
