"""Where a job stands: its own journals first, Slurm's row beside them, and neither alone believed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.slurm_support import BEGIN, FakeHost, Submitted, a_job, a_plan, ended, row

from mpijob.backends.slurm.jobs import derive
from mpijob.formats.slurm import batch_script
from mpijob.formats.slurm.queries import Row
from mpijob.model import JobRef, JobState, Phase, Retry
from mpijob.observation.state.phase import Reason

LOST = {"requeue_on_lost_worker": True}
ENDS = {
    "TIMEOUT": (Phase.FAILED, Reason.TIME_LIMIT),
    "DEADLINE": (Phase.FAILED, Reason.TIME_LIMIT),
    "NODE_FAIL": (Phase.FAILED, Reason.NODE_FAILED),
    "BOOT_FAIL": (Phase.FAILED, Reason.NODE_FAILED),
    "OUT_OF_MEMORY": (Phase.FAILED, Reason.MEMORY_EXCEEDED),
    "PREEMPTED": (Phase.FAILED, Reason.SLURM_PREEMPTED),
    "CANCELLED by 1000": (Phase.CANCELLED, Reason.CANCELLED),
    "FAILED": (Phase.FAILED, Reason.LAUNCHER_FAILED),
}


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path)


@pytest.fixture
def job(host: FakeHost) -> Submitted:
    return Submitted(host)


def of(job: Submitted, slurm: Row | None = None, **known: Any) -> JobState:
    return derive.state(job.seen(slurm, **known))[0]


def standing(job: Submitted, slurm: Row | None = None, **known: Any) -> tuple[Phase, str]:
    state = of(job, slurm, **known)
    return state.phase, state.reason


def settled(job: Submitted, slurm: Row | None = None, **known: Any) -> bool:
    return derive.state(job.seen(slurm, **known))[1].settled


# -- on its way -------------------------------------------------------------------------------
@pytest.mark.req("FR-OBS-005")
def test_a_job_goes_from_queued_over_pending_and_initializing_to_running(job: Submitted) -> None:
    phases = [
        of(job).phase,
        of(job, row(T="PENDING", r="Priority")).phase,
        of(job, row(T="CONFIGURING")).phase,
    ]
    job.journal("5 start job=67 restart=0 nodes=n[1-2]", "5 launch")
    phases.append(of(job, row()).phase)
    job.journal("6 hello rank=0 size=2 slot=0 host=n1 pid=1 gpus=", node="n1")
    phases.append(of(job, row()).phase)
    job.journal("7 hello rank=1 size=2 slot=0 host=n2 pid=1 gpus=", node="n2")
    phases.append(of(job, row()).phase)
    job.left(0, 0)
    phases.append(of(job, row(T="COMPLETING")).phase)
    assert phases == [
        Phase.QUEUED, Phase.QUEUED, Phase.PENDING, Phase.INITIALIZING, Phase.INITIALIZING, Phase.RUNNING,
        Phase.SUCCEEDED,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("slurm", "reason"),
    [
        ("Priority", Reason.WAITING),
        ("Resources", Reason.WAITING),
        ("ReqNodeNotAvail, UnavailableNodes:n[1-4]", Reason.WAITING),
        ("JobHeldUser", Reason.HELD),
        ("launch failed requeued held", Reason.HELD),
        ("QOSMaxCpuPerJobLimit", Reason.NEVER_STARTS),
        ("PartitionTimeLimit", Reason.NEVER_STARTS),
        ("SomethingNew", Reason.WAITING),
    ],
)
def test_a_job_that_waits_says_why_and_whether_that_helps(job: Submitted, slurm: str, reason: Reason) -> None:
    state = of(job, row(T="PENDING", r=slurm))
    assert (state.phase, state.reason) == (Phase.QUEUED, reason)
    assert slurm in state.waiting_for
    assert "main" in state.waiting_for
    assert (state.started, state.finished) == (None, None)


def test_a_job_that_waits_for_others_says_for_which(host: FakeHost) -> None:
    plan = a_plan(
        a_job(after=("prep", "any:clean")), waits_for=(JobRef("default", "prep"), JobRef("default", "clean"))
    )
    job = Submitted(host, plan)
    for slurm in (None, row(T="PENDING", r="Dependency"), row(T="PENDING", r="None")):
        assert standing(job, slurm) == (Phase.QUEUED, Reason.WAITING_FOR_JOBS)
    assert "prep" in of(job).waiting_for
    assert "clean" in of(job).waiting_for
    assert standing(job, row(T="PENDING", r="Resources")) == (Phase.QUEUED, Reason.WAITING)


def test_a_job_whose_dependency_can_never_be_met_has_failed_by_that(host: FakeHost) -> None:
    job = Submitted(host, a_plan(a_job(after=("prep",)), waits_for=(JobRef("default", "prep"),)))
    gone = row(T="CANCELLED", r="DependencyNeverSatisfied", N="", S="N/A", e=f"{BEGIN + 9:.0f}")
    assert standing(job, gone) == (Phase.FAILED, Reason.DEPENDENCY_FAILED)


def test_a_running_job_has_its_nodes_its_ranks_and_its_times(job: Submitted) -> None:
    job.began()
    state = of(job, row())
    assert (state.created, state.started, state.running) == (BEGIN, BEGIN + 5, BEGIN + 6)
    assert [(worker.index, worker.node) for worker in state.workers] == [(0, "n1"), (1, "n2")]
    assert [(rank.rank, rank.node, rank.pid) for rank in state.ranks] == [(0, "n1", 400), (1, "n2", 401)]
    assert (state.kind, state.engine, state.owner, state.attempt, state.world) == (
        "SlurmJob",
        "slurm",
        "alice",
        1,
        2,
    )
    assert state.launcher is not None
    assert state.launcher.node == "n1"


@pytest.mark.parametrize("word", ["SUSPENDED", "SIGNALING", "STOPPED", "RESIZING", "UNKNOWN", "HIBERNATING"])
def test_a_state_that_is_no_end_leaves_a_running_job_running(job: Submitted, word: str) -> None:
    job.began()
    assert standing(job, row(T=word)) == (Phase.RUNNING, Reason.RUNNING)


# -- ends that nobody wanted from outside -------------------------------------------------------
@pytest.mark.parametrize(
    "word", ["COMPLETED", "FAILED", "CANCELLED by 0", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"]
)
def test_a_job_that_wrote_of_its_success_has_succeeded_whatever_slurm_says(job: Submitted, word: str) -> None:
    job.began()
    job.left(0, 0)
    for slurm in (ended(state=word), None):
        assert standing(job, slurm) == (Phase.SUCCEEDED, Reason.COMPLETED)
    state = of(job)
    assert (state.finished, state.launcher_exit_code) == (BEGIN + 66, 0)
    assert settled(job)


def test_the_first_rank_that_failed_is_the_verdict(job: Submitted) -> None:
    job.began()
    job.left(0, 3)
    state = of(job, ended(state="COMPLETED"))
    assert (state.phase, state.reason, state.launcher_exit_code) == (Phase.FAILED, Reason.RANK_FAILED, 3)
    assert "rank 1" in state.message
    assert [rank.exit_code for rank in state.ranks] == [0, 3]


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("OUT_OF_MEMORY", Reason.MEMORY_EXCEEDED),
        ("NODE_FAIL", Reason.NODE_FAILED),
        ("FAILED", Reason.RANK_FAILED),
        ("TIMEOUT", Reason.RANK_FAILED),
    ],
)
def test_slurm_knows_the_cause_of_a_failure_that_the_job_could_not_see(
    job: Submitted, word: str, reason: Reason
) -> None:
    job.began()
    job.left(137, 0)
    assert standing(job, ended(state=word)) == (Phase.FAILED, reason)


def test_a_job_that_passed_its_own_deadline_says_so_whatever_follows(host: FakeHost) -> None:
    job = Submitted(host, a_plan(a_job(deadline_seconds=30.0)))
    job.began()
    job.journal("35 deadline")
    assert standing(job, row()) == (Phase.RUNNING, Reason.DEADLINE_EXCEEDED)
    job.left(143, 143, at=40)
    state = of(job, ended(state="FAILED"))
    assert (state.phase, state.reason) == (Phase.FAILED, Reason.DEADLINE_EXCEEDED)
    assert "30 s" in state.message


def test_a_launcher_that_ended_well_without_its_ranks_is_no_success(job: Submitted) -> None:
    job.journal("5 start job=67 restart=0 nodes=n[1-2]", "5 launch", "9 end code=0")
    assert standing(job, ended()) == (Phase.FAILED, Reason.WORLD_UNPROVED)


def test_ranks_that_see_another_world_are_a_failure(job: Submitted) -> None:
    job.journal("5 start job=67 restart=0 nodes=n[1-2]", "5 launch")
    for rank in (0, 1):
        job.journal(f"6 hello rank={rank} size=1 slot=0 host=n{rank + 1} pid=1 gpus=", node=f"n{rank + 1}")
    job.left(0, 0)
    assert standing(job, ended()) == (Phase.FAILED, Reason.WORLD_DIFFERS)


# -- ends by Slurm ----------------------------------------------------------------------------
@pytest.mark.parametrize(("word", "verdict"), ENDS.items())
def test_an_end_that_slurm_wanted_has_slurms_reason(
    job: Submitted, word: str, verdict: tuple[Phase, str]
) -> None:
    job.began()
    job.journal("60 term")
    slurm = ended(state=word, nodelist="n[1-2]")
    assert standing(job, slurm) == verdict
    assert settled(job, slurm)
    assert "67" in of(job, slurm).message
    job.left(143, 143)
    assert of(job, slurm).phase is verdict[0]
    if word != "FAILED":
        assert of(job, slurm).reason == verdict[1]


@pytest.mark.parametrize(("word", "verdict"), [one for one in ENDS.items() if one[0] != "FAILED"])
def test_a_job_that_could_write_nothing_more_ended_as_slurm_says(
    job: Submitted, word: str, verdict: tuple[Phase, str]
) -> None:
    job.began()
    slurm = ended(state=word)
    assert standing(job, slurm) == verdict
    assert of(job, slurm).finished == BEGIN + 65


def test_a_node_that_failed_is_known_while_the_job_is_completing(job: Submitted) -> None:
    job.began()
    assert standing(job, row(T="COMPLETING", r="NodeDown")) == (Phase.FAILED, Reason.NODE_FAILED)
    assert standing(job, row(T="COMPLETING", r="None"))[0] is Phase.RUNNING


@pytest.mark.parametrize(
    ("why", "verdict"),
    [
        (b"DUE TO TIME LIMIT ***", (Phase.FAILED, Reason.TIME_LIMIT)),
        (b"DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***", (Phase.FAILED, Reason.NODE_FAILED)),
        (b"DUE TO PREEMPTION ***", (Phase.FAILED, Reason.SLURM_PREEMPTED)),
        (b"***", (Phase.CANCELLED, Reason.CANCELLED)),
        (b"DUE TO JOB REQUEUE ***", (Phase.QUEUED, Reason.SLURM_REQUEUED)),
    ],
)
def test_without_a_row_slurms_own_words_in_the_log_say_why_it_ended(
    job: Submitted, why: bytes, verdict: tuple[Phase, str]
) -> None:
    job.began()
    job.journal("60 term")
    said = b"loss 0.1\nslurmstepd-n1: error: *** JOB 67 ON n1 CANCELLED AT 2026-11-17T18:25:46 " + why + b"\n"
    assert standing(job, said=said) == verdict


@pytest.mark.security
def test_words_of_slurm_that_a_program_prints_end_nothing(job: Submitted) -> None:
    job.began()
    said = b"*** JOB 67 ON n1 CANCELLED AT 2026-11-17T18:25:46 DUE TO TIME LIMIT ***\n"
    assert standing(job, row(), said=said) == (Phase.RUNNING, Reason.RUNNING)


# -- back in the queue ------------------------------------------------------------------------
@pytest.mark.parametrize("word", ["NODE_FAIL", "BOOT_FAIL", "PREEMPTED"])
def test_a_job_that_is_requeued_when_it_loses_a_node_waits_for_its_next_attempt(
    host: FakeHost, word: str
) -> None:
    job = Submitted(host, a_plan(a_job(**LOST)))
    job.began()
    again = row(T="PENDING", r="BeginTime", N="", S="N/A")
    state = of(job, again)
    assert (state.phase, state.reason, state.attempt) == (Phase.QUEUED, Reason.SLURM_REQUEUED, 2)
    assert (state.started, state.workers) == (None, ())
    assert standing(job, ended(state=word)) == ENDS[word]  # it was the last try


def test_a_node_that_fails_under_such_a_job_does_not_end_it_while_it_is_completing(host: FakeHost) -> None:
    job = Submitted(host, a_plan(a_job(**LOST)))
    job.began()
    state = of(job, row(T="COMPLETING", r="NodeDown"))
    assert (state.phase, state.reason, state.attempt) == (Phase.QUEUED, Reason.SLURM_REQUEUED, 2)


def test_the_second_attempt_runs_and_ends_by_its_own_journal(host: FakeHost) -> None:
    job = Submitted(host, a_plan(a_job(**LOST)))
    job.began()
    job.began(attempt=2, at=200)
    state = of(job, row(), at=300)
    assert (state.phase, state.attempt, state.started) == (Phase.RUNNING, 2, BEGIN + 200)
    job.left(0, 0, attempt=2, at=250)
    assert of(job, None).phase is Phase.SUCCEEDED
    assert of(job, None).attempts_allowed == 2


def test_an_earlier_attempt_ended_as_its_journal_or_slurms_words_say(job: Submitted) -> None:
    job.began()
    assert derive.earlier(job.seen())[0].reason == Reason.SLURM_REQUEUED
    job.journal("60 term")
    said = b"slurmstepd: error: *** JOB 67 ON n1 CANCELLED AT 2026-11-17T18:25:46 DUE TO NODE FAILURE ***"
    assert derive.earlier(job.seen(said=said))[0].reason == Reason.NODE_FAILED


def test_an_earlier_attempt_that_failed_by_itself_keeps_its_cause(host: FakeHost) -> None:
    job = Submitted(host, a_plan(a_job(retry=Retry(limit=1))))
    job.began()
    job.left(7, 0)
    job.journal("67 retry in=30")
    state = derive.earlier(job.seen())[0]
    assert (state.phase, state.reason, state.launcher_exit_code) == (Phase.FAILED, Reason.RANK_FAILED, 7)


def test_a_failed_attempt_that_is_retried_counts_down_to_the_next_one(host: FakeHost) -> None:
    job = Submitted(host, a_plan(a_job(retry=Retry(limit=1))))
    job.began()
    job.left(7, 0)
    job.journal("67 retry in=30")
    (job.path / "retries").write_text("1\n")
    state = of(job, row(), at=76)
    assert (state.phase, state.reason, state.attempt) == (Phase.QUEUED, Reason.BACKING_OFF, 2)
    assert "20 s" in state.message
    assert of(job, row(), at=500).message.endswith("0 s")


def test_a_job_whose_pause_slurm_ended_failed_as_its_last_attempt_did(host: FakeHost) -> None:
    job = Submitted(host, a_plan(a_job(retry=Retry(limit=1))))
    job.began()
    job.left(7, 0)
    job.journal("67 retry in=30")
    assert standing(job, ended(state="TIMEOUT")) == (Phase.FAILED, Reason.RANK_FAILED)


# -- what its owner asked for -----------------------------------------------------------------
def test_a_job_that_was_cancelled_while_it_ran_is_cancelled_once_it_has_ended(job: Submitted) -> None:
    job.began()
    job.acted("cancelled", at=60)
    assert standing(job, row()) == (Phase.RUNNING, Reason.CANCELLING)
    job.journal("60 term")
    job.left(143, 143)
    assert standing(job, ended(state="CANCELLED by 1000")) == (Phase.CANCELLED, Reason.CANCELLED)
    assert standing(job, None) == (Phase.CANCELLED, Reason.CANCELLED)


def test_a_job_that_succeeded_before_the_cancel_reached_it_has_succeeded(job: Submitted) -> None:
    job.began()
    job.left(0, 0)
    job.acted("cancelled", at=67)
    assert standing(job, ended(state="CANCELLED by 1000")) == (Phase.SUCCEEDED, Reason.COMPLETED)


def test_a_job_that_was_cancelled_in_the_queue_never_started(job: Submitted) -> None:
    job.acted("cancelled", at=9)
    state = of(job, row(T="CANCELLED by 1000", N="", S="N/A", e=f"{BEGIN + 9:.0f}"))
    assert (state.phase, state.started, state.finished) == (Phase.CANCELLED, None, BEGIN + 9)


def test_a_job_that_somebody_else_cancelled_in_the_queue_is_cancelled_by_him(job: Submitted) -> None:
    state = of(job, ended(state="CANCELLED by 0", start="Unknown", nodelist="None assigned"))
    assert state.phase is Phase.CANCELLED
    assert "by 0" in state.message


def test_a_suspended_job_holds_nothing_until_it_is_resumed(job: Submitted) -> None:
    job.began()
    job.acted("suspended", at=60)
    held = row(T="PENDING", r="JobHeldUser", N="", S="N/A")
    assert standing(job, held) == (Phase.SUSPENDED, Reason.SUSPENDED)
    assert of(job, held).released == BEGIN + 60
    job.acted("resumed", at=80)
    state = of(job, row(T="PENDING", r="Priority", N="", S="N/A"))
    assert (state.phase, state.reason, state.attempt) == (Phase.QUEUED, Reason.SLURM_REQUEUED, 2)
    assert state.queued == BEGIN + 80


# -- what never began, and what nobody knows --------------------------------------------------
@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"state": "FAILED", "exitcode": "97:0"}, Reason.DIRECTORY_NOT_SHARED),
        ({"state": "FAILED", "exitcode": "98:0"}, Reason.DIRECTORY_NOT_SHARED),
        ({"state": "FAILED", "exitcode": "0:53"}, Reason.DIRECTORY_NOT_SHARED),
        ({"state": "NODE_FAIL", "exitcode": "0:0"}, Reason.NODE_FAILED),
        ({"state": "BOOT_FAIL", "exitcode": "0:0"}, Reason.NODE_FAILED),
        ({"state": "TIMEOUT", "exitcode": "0:0"}, Reason.TIME_LIMIT),
        ({"state": "COMPLETED", "exitcode": "0:0"}, Reason.START_REFUSED),
        (
            {"state": "CANCELLED by 0", "start": f"{BEGIN + 5:.0f}", "end": f"{BEGIN + 5:.0f}"},
            Reason.START_REFUSED,
        ),
    ],
)
def test_a_job_that_wrote_nothing_failed_to_start_and_says_how(
    job: Submitted, cells: dict[str, str], reason: Reason
) -> None:
    state = of(job, ended(**cells))
    assert (state.phase, state.reason) == (Phase.FAILED, reason)
    assert state.workers == ()


def test_the_node_that_cannot_use_the_directory_is_named(job: Submitted) -> None:
    one = of(job, ended(state="FAILED", exitcode="97:0", nnodes="1", nodelist="n3"))
    more = of(job, ended(state="FAILED", exitcode="97:0", nnodes="2", nodelist="n[3-4]"))
    assert ("node n3" in one.message, "first of n[3-4]" in more.message) == (True, True)
    assert str(job.path) in one.message


@pytest.mark.req("NFR-003")
def test_a_job_that_slurm_has_forgotten_without_a_word_has_an_unknown_outcome(job: Submitted) -> None:
    job.began()
    state = of(job, None, answered=True)
    assert (state.phase, state.reason) == (Phase.FAILED, Reason.OUTCOME_UNKNOWN)
    assert "67" in state.message
    assert not settled(job, None)


def test_no_answer_of_slurm_is_no_news(job: Submitted) -> None:
    job.began()
    state = of(job, None, answered=False, silent="Slurm does not respond: Unable to contact slurm controller")
    assert (state.phase, state.reason) == (Phase.RUNNING, Reason.RUNNING)
    assert "Unable to contact" in state.message


@pytest.mark.parametrize(
    ("answered", "at", "phase"),
    [(True, 299, Phase.QUEUED), (True, 301, Phase.FAILED), (False, 10_000, Phase.QUEUED)],
)
def test_a_job_that_is_nowhere_is_given_some_minutes_of_slurms_answers(
    job: Submitted, answered: bool, at: float, phase: Phase
) -> None:
    assert of(job, None, answered=answered, at=at).phase is phase


def test_a_submit_that_was_ended_before_slurm_had_the_job_is_a_failure(host: FakeHost) -> None:
    job = Submitted(host, number="")
    assert standing(job) == (Phase.FAILED, Reason.START_REFUSED)
    assert settled(job)


@pytest.mark.security
@pytest.mark.parametrize(
    "line",
    [
        "garbage",
        "x end code=0",
        "66 end",
        "66 end co67.2 retry in=3",
        "66 end code=137x",
        "66 hello rank=99999999999 size=-1 slot=x host= pid=² gpus=",
        "66 exit rank=5 code=oom",
        "66 retry in=soon",
        "\x00\x1b[2J",
    ],
)
def test_a_line_that_was_cut_off_or_made_up_breaks_nothing(job: Submitted, line: str) -> None:
    job.began()
    job.journal(line)
    assert standing(job, row()) == (Phase.RUNNING, Reason.RUNNING)


@pytest.mark.parametrize("part", ["66 end", "66 end code=", "66 end code=1", "66 exit rank=0 code=1"])
def test_a_line_that_is_not_yet_whole_is_not_believed(job: Submitted, part: str) -> None:
    job.began()
    with (job.path / "a1" / "journal").open("a") as out:
        out.write(part)
    assert standing(job, row()) == (Phase.RUNNING, Reason.RUNNING)
    with (job.path / "a1" / "journal").open("a") as out:
        out.write("37\n" if part[-1] == "1" else "\n")
    codes = {rank.exit_code for rank in of(job, row()).ranks} | {of(job, row()).launcher_exit_code}
    assert codes - {None} <= {137}


# -- lists ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("slurm", "reason"),
    [("Priority", Reason.WAITING), ("JobHeldUser", Reason.HELD), ("BadConstraints", Reason.NEVER_STARTS)],
)
def test_a_list_needs_only_the_row_and_the_comment_of_a_job_that_waits(
    job: Submitted, slurm: str, reason: Reason
) -> None:
    wanted = a_job(labels={"run": "7"}, owner="jane", queue="main", description="good")
    told = batch_script.read_comment(batch_script.comment(wanted, job.plan.uid, "mpich 4.1"))
    assert told is not None
    state = derive.queued(job.place, row(T="PENDING", r=slurm), told)
    assert (state.phase, state.reason, state.world, state.workers_wanted) == (Phase.QUEUED, reason, 2, 2)
    assert (state.owner, state.labels, state.queue, state.mpi) == ("jane", {"run": "7"}, "main", "mpich 4.1")
    assert (state.ref, state.created, state.description) == (job.ref, BEGIN, "good")
