"""Jobs of plain sbatch in the same words as ours: their address, their phase, their steps."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.slurm_support import BEGIN, FakeHost, Submitted, a_job, a_plan, ended, row

from mpijob.backends.slurm.jobs import plain_jobs
from mpijob.model import JobRef, LauncherPhase, Phase
from mpijob.observation.state.phase import Reason


@pytest.mark.parametrize(
    ("cells", "name"),
    [
        ({"j": "relax"}, "relax-67"),
        ({"j": "My Job (v2)"}, "my-job-v2-67"),
        ({"j": "../../etc/passwd"}, "etc-passwd-67"),
        ({"j": "\x1b[31m"}, "31m-67"),
        ({"j": "!!!"}, "job-67"),
        ({"j": "x" * 200}, f"{'x' * 40}-67"),
        ({"j": "sweep", "A": "71", "F": "70", "K": "3"}, "sweep-70-3"),
    ],
)
def test_a_job_is_called_after_its_name_and_number(cells: dict[str, str], name: str) -> None:
    ref = plain_jobs.ref(row(**cells))
    assert (ref.namespace, ref.name, ref.uid) == ("default", name, f"slurm-{cells.get('A', '67')}")


@pytest.mark.parametrize(
    ("ref", "number"),
    [
        (JobRef("default", "relax-67"), "67"),
        (JobRef("default", "67"), "67"),
        (JobRef("default", "relax", "slurm-67"), "67"),
        (JobRef("default", "relax-67", "0123456789abcdef"), None),
        (JobRef("default", "relax"), None),
        (JobRef("default", "relax-67x"), None),
    ],
)
def test_an_address_means_a_number_or_none(ref: JobRef, number: str | None) -> None:
    assert plain_jobs.number_of(ref) == number


def test_a_number_with_another_name_is_another_job() -> None:
    found = row(j="relax")
    assert plain_jobs.named(found, JobRef("default", "relax-67"))
    assert plain_jobs.named(found, JobRef("default", "67"))
    assert not plain_jobs.named(found, JobRef("default", "other-67"))


@pytest.mark.parametrize(
    ("word", "phase", "reason"),
    [
        ("COMPLETED", Phase.SUCCEEDED, Reason.COMPLETED),
        ("FAILED", Phase.FAILED, Reason.LAUNCHER_FAILED),
        ("CANCELLED by 1000", Phase.CANCELLED, Reason.CANCELLED),
        ("REVOKED", Phase.CANCELLED, Reason.CANCELLED),
        ("TIMEOUT", Phase.FAILED, Reason.TIME_LIMIT),
        ("DEADLINE", Phase.FAILED, Reason.TIME_LIMIT),
        ("NODE_FAIL", Phase.FAILED, Reason.NODE_FAILED),
        ("BOOT_FAIL", Phase.FAILED, Reason.NODE_FAILED),
        ("OUT_OF_MEMORY", Phase.FAILED, Reason.MEMORY_EXCEEDED),
        ("PREEMPTED", Phase.FAILED, Reason.SLURM_PREEMPTED),
    ],
)
def test_every_end_of_slurm_is_a_phase_with_its_reason(word: str, phase: Phase, reason: Reason) -> None:
    state = plain_jobs.state(ended(state=word, exitcode="3:0"))
    assert (state.phase, state.reason, state.finished) == (phase, reason, BEGIN + 65)
    assert state.launcher is not None
    assert state.launcher.phase is not LauncherPhase.RUNNING


@pytest.mark.parametrize(
    ("word", "reason", "phase"),
    [
        ("PENDING", "Priority", Phase.QUEUED),
        ("REQUEUE_HOLD", "job requeued in held state", Phase.QUEUED),
        ("CONFIGURING", "None", Phase.RUNNING),
        ("RUNNING", "None", Phase.RUNNING),
        ("COMPLETING", "None", Phase.RUNNING),
        ("COMPLETING", "NodeDown", Phase.FAILED),
        ("SUSPENDED", "None", Phase.SUSPENDED),
        ("HIBERNATING", "None", Phase.RUNNING),
    ],
)
def test_a_job_that_has_not_ended_stands_where_squeue_says(word: str, reason: str, phase: Phase) -> None:
    state = plain_jobs.state(row(T=word, r=reason))
    assert state.phase is phase
    assert (state.started is None) is (phase is Phase.QUEUED)


def test_a_job_has_its_nodes_and_its_exit_code() -> None:
    state = plain_jobs.state(ended(state="FAILED", exitcode="7:0", nodelist="n[1-2,5]"))
    assert [worker.node for worker in state.workers] == ["n1", "n2", "n5"]
    assert (state.launcher_exit_code, state.owner, state.queue) == (7, "alice", "main")
    assert "exit code 7" in state.message


def test_a_job_that_never_starts_is_warned_of() -> None:
    never = plain_jobs.state(row(T="PENDING", r="QOSMaxCpuPerJobLimit"))
    assert [one.code for one in plain_jobs.warnings(never)] == ["SLURM_NEVER_STARTS"]
    assert plain_jobs.warnings(plain_jobs.state(row(T="PENDING", r="Priority"))) == ()


def test_a_held_job_is_warned_of_with_what_releases_it() -> None:
    held = plain_jobs.state(row(T="PENDING", r="JobHeldUser"))
    assert (held.phase, held.reason) == (Phase.QUEUED, Reason.HELD)
    assert "scontrol release" in plain_jobs.warnings(held)[0].hint


def test_a_list_has_the_jobs_in_the_order_in_which_they_were_submitted() -> None:
    first, second, later = row(A="9"), row(A="10"), row(A="3", V=f"{BEGIN + 1:.0f}")
    assert sorted([later, second, first], key=plain_jobs.order) == [first, second, later]


def test_steps_are_those_that_have_a_number() -> None:
    rows = [
        ended(jobidraw="67", jobname="wrap"),
        ended(jobidraw="67.batch", jobname="batch"),
        ended(jobidraw="67.extern", jobname="extern"),
        ended(jobidraw="67.0", jobname="solve", exitcode="3:0", state="FAILED", maxrss="2048K"),
        ended(jobidraw="67.1", jobname="post", state="RUNNING", end="Unknown"),
    ]
    first, second = plain_jobs.steps(rows)
    assert (first.number, first.command, first.exit_code, first.peak_bytes) == (0, "solve", 3, 2 << 20)
    assert (second.number, second.exit_code, second.finished) == (1, None, None)


def test_a_script_of_ours_keeps_its_own_address_and_what_its_owner_asked_for(tmp_path: Path) -> None:
    job = Submitted(FakeHost(tmp_path), a_plan(a_job(labels={"run": "7"}, queue="main")))
    state = plain_jobs.of_ours(row(), job.files)
    assert (state.ref, state.labels, state.phase, state.created) == (
        job.ref,
        {"run": "7"},
        Phase.RUNNING,
        BEGIN,
    )
    job.acted("suspended", at=60)
    held = row(T="PENDING", r="JobHeldUser")
    assert plain_jobs.of_ours(held, job.files).phase is Phase.SUSPENDED
    job.acted("resumed", at=70)
    assert plain_jobs.of_ours(held, job.files).phase is Phase.QUEUED
    gone = ended(state="CANCELLED by 0", reason="DependencyNeverSatisfied")
    assert plain_jobs.of_ours(gone, job.files).reason == Reason.DEPENDENCY_FAILED
