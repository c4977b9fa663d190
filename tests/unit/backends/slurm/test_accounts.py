"""What jobs used and held: ours by their own files, those of plain sbatch by the accounting, none of them twice."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.unit.slurm_support import BEGIN, FakeHost, Submitted, a_job, a_plan, a_reader, sacct, squeue

from mpijob.backends.slurm.host import Answer
from mpijob.backends.slurm.jobs import accounts
from mpijob.errors import BackendError
from mpijob.formats.slurm import batch_script
from mpijob.model import Amounts, Phase
from mpijob.model.status.accounts import Account, AccountQuery

GIB = 1 << 30
HOUR = 3600.0
NEEDS = Amounts(2.0, 2 * GIB, 0)
SILENT = Answer(1, "", "sacct: error: Problem talking to the database: Connection refused\n")


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path / "root", squeue="", sacct="")


def find(host: FakeHost, **query: object) -> tuple[Account, ...]:
    wanted = AccountQuery(**query)  # type: ignore[arg-type]  # any field
    return accounts.find(a_reader(host, host.root.parent), wanted, BEGIN + 1000)


def done(
    host: FakeHost, name: str = "solve", number: str = "67", uid: str = "aa", at: float = 0.0
) -> Submitted:
    """Return a job of ours that held its nodes for 61 seconds."""
    job = Submitted(host, a_plan(a_job(name=name), uid=uid, needs=NEEDS), number, BEGIN + at)
    job.began()
    job.left(0, 0)
    return job


def test_a_job_of_ours_is_counted_by_what_its_nodes_measured(host: FakeHost) -> None:
    job = done(host)
    lines = ["page=4096 tick=100 ahead=" + f"{BEGIN * 100:.0f}", "5.00 0 256 0", "15.00 0 512 2000"]
    (job.path / "a1" / "usage-n1").write_text("\n".join([*lines, ""]))
    (found,) = find(host)
    assert (found.ref, found.phase, found.cores, found.measured) == (job.ref, Phase.SUCCEEDED, 2.0, True)
    assert found.core_hours == pytest.approx(2 * found.held_seconds / HOUR)
    assert found.held_seconds == pytest.approx(61)
    assert found.core_hours_used == pytest.approx(20 / HOUR)
    assert found.peak_bytes == 512 * 4096


def test_usage_that_was_cut_off_or_is_none_counts_as_far_as_it_goes(host: FakeHost) -> None:
    job = done(host)
    (job.path / "a1" / "usage-n1").write_bytes(
        b"page=\n5.00 0 256 0\nrubbish\n1.0 -1 x y\n\xff\xfe\n15.00 0 51"
    )
    (found,) = find(host)
    assert found.phase is Phase.SUCCEEDED
    assert found.peak_bytes == 256 * 4096


def test_a_job_of_plain_sbatch_is_counted_by_the_accounting(host: FakeHost) -> None:
    host.replies["sacct"] = sacct(
        {"jobidraw": "50", "jobname": "relax", "totalcpu": "01:00:00", "maxrss": "1024K"}
    )
    (found,) = find(host)
    assert (found.ref.name, found.owner, found.phase, found.cores) == (
        "relax-50",
        "alice",
        Phase.SUCCEEDED,
        4.0,
    )
    assert found.memory_bytes == 8 * GIB
    assert found.core_hours_used == pytest.approx(1.0)
    assert found.held_seconds == pytest.approx(60)


def test_a_job_that_measured_nothing_is_said_not_to_be_measured(host: FakeHost) -> None:
    host.replies["sacct"] = sacct({"jobidraw": "50", "totalcpu": "00:00:00"})
    (found,) = find(host)
    assert (found.measured, found.core_hours_used) == (False, 0)


def test_of_a_job_that_was_requeued_the_last_try_counts_and_no_step(host: FakeHost) -> None:
    host.replies["sacct"] = sacct(
        {"jobidraw": "50", "state": "NODE_FAIL"},
        {"jobidraw": "50"},
        {"jobidraw": "50.batch"},
        {"jobidraw": "50.0"},
    )
    assert [found.phase for found in find(host)] == [Phase.SUCCEEDED]


def test_no_job_is_counted_twice(host: FakeHost) -> None:
    done(host, number="67")
    deleted = batch_script.comment(a_job(name="gone"), "bb", "mpich")
    host.replies["squeue"] = squeue({"%A": "67"}, {"%A": "50", "%j": "relax"}, {"%A": "51", "%k": deleted})
    host.replies["sacct"] = sacct(
        {"jobidraw": "67"}, {"jobidraw": "50", "jobname": "relax"}, {"jobidraw": "52", "comment": deleted}
    )
    assert sorted(found.ref.name for found in find(host)) == ["relax-50", "solve"]


@pytest.mark.parametrize(
    "answer", [SILENT, Answer(1, "", "Slurm accounting storage is disabled\n"), BackendError("no")]
)
def test_without_the_accounting_what_slurm_remembers_is_told(
    host: FakeHost, answer: Answer | BackendError
) -> None:
    host.replies["sacct"] = answer
    host.replies["squeue"] = squeue({"%A": "50", "%j": "relax"})
    done(host)
    assert sorted(found.ref.name for found in find(host)) == ["relax-50", "solve"]


def test_without_any_answer_of_slurms_ours_are_told(host: FakeHost) -> None:
    done(host)
    host.replies["sacct"] = SILENT
    host.replies["squeue"] = Answer(1, "", "slurm_load_jobs error: Unable to contact slurm controller\n")
    assert [found.ref.name for found in find(host)] == ["solve"]


def test_the_accounting_is_asked_from_the_time_on_that_is_wanted_in_a_form_that_it_takes(
    host: FakeHost,
) -> None:
    find(host, since=BEGIN)
    (argv,) = [argv for argv in host.asked if argv[0] == "sacct"]
    assert "--starttime=2025-11-17T17:20:00" in argv, "as sacct's manual has it, in UTC (TIMES)"
    find(host)
    assert "--starttime=now-7days" in host.asked[-1]


def test_the_newest_come_first_and_one_more_than_a_page_tells_that_there_is_another(host: FakeHost) -> None:
    for at in range(5):
        done(host, f"job{at}", str(60 + at), f"a{at}", at * 10.0)
    assert [found.ref.name for found in find(host, limit=2)] == ["job4", "job3", "job2"]


def test_what_is_not_wanted_is_left_out(host: FakeHost) -> None:
    done(host)
    host.replies["sacct"] = sacct({"jobidraw": "50", "jobname": "relax", "user": "bob", "state": "FAILED"})
    assert [found.ref.name for found in find(host, owners=("bob",))] == ["relax-50"]
    assert [found.ref.name for found in find(host, phases=("Succeeded",))] == ["solve"]
    assert find(host, namespace="other") == ()
    assert find(host, since=BEGIN + 500) == ()


def test_jobs_that_are_deleted_meanwhile_or_damaged_hide_no_other(host: FakeHost) -> None:
    done(host)
    shutil.rmtree(done(host, "gone", "68", "bb").path)
    (done(host, "cut", "69", "cc").path / "plan.json").write_bytes(b'{"job":')
    assert [found.ref.name for found in find(host)] == ["solve"]


@pytest.mark.security
def test_names_and_users_of_others_are_data(host: FakeHost) -> None:
    host.replies["sacct"] = sacct(
        {"jobidraw": "50", "jobname": "../../etc;$(id)", "user": "a b", "nodelist": "n[1-"}
    )
    (found,) = find(host)
    assert (found.ref.name, found.owner, found.nodes) == ("etc-id-50", "a b", ())
