"""Handing a job to Slurm: wholly or not at all, once, and after the jobs that it waits for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.slurm_support import BEGIN, UID, FakeHost, Submitted, a_job, a_plan, a_reader, squeue

from mpijob.backends.slurm import submit
from mpijob.backends.slurm.client import SlurmClient
from mpijob.backends.slurm.host import Answer
from mpijob.backends.slurm.jobs.job_files import JobDirectories
from mpijob.backends.slurm.jobs.job_reader import JobReader
from mpijob.backends.slurm.jobs.poll import Poll
from mpijob.errors import BackendError, Conflict, InvalidJob, MpiJobError, NotFound
from mpijob.formats.slurm import batch_script
from mpijob.model import JobRef, Phase, Plan


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    root = tmp_path / "root"
    root.mkdir()
    return FakeHost(root, sbatch="71\n", env="72\n", squeue="", sacct="", scontrol="")


@pytest.fixture
def reader(host: FakeHost, tmp_path: Path) -> JobReader:
    client = SlurmClient(host)
    return JobReader(client, JobDirectories(host), Poll(client, tmp_path / "poll"), "")


def send(reader: JobReader, plan: Plan) -> JobRef:
    return submit.submit(plan, reader, reader.jobs.host.root.parent)


def asked(host: FakeHost) -> tuple[str, ...]:
    """Return the words of the one sbatch that was called."""
    (words,) = [argv for argv in host.asked if "sbatch" in argv]
    return words


def waiting(*after: str, **fields: Any) -> Plan:
    """Return the plan of a job that waits for the jobs of these entries, none of which is met."""
    refs = tuple(JobRef("default", entry.rpartition(":")[2]) for entry in after)
    return a_plan(a_job(after=after, **fields), waits_for=refs)


def other(host: FakeHost, name: str, number: str, uid: str) -> Submitted:
    return Submitted(host, a_plan(a_job(name=name), uid=uid), number)


def test_a_job_gets_a_directory_a_number_and_a_comment(host: FakeHost, reader: JobReader) -> None:
    ref = send(reader, a_plan())
    place = reader.find(ref)
    files = reader.jobs.files(place)
    assert (ref.uid, files.number, files.plan.uid) == (UID, "71", UID)
    assert {"plan.json", "script", "allocation.sh", "allocation_rank.sh", "work", "slurm"} <= {
        path.name for path in files.path.iterdir()
    }
    words = asked(host)
    assert words[:2] == ("sbatch", "--parsable")
    assert words[-1] == str(files.path / "script")
    told = batch_script.read_comment(words[2].removeprefix("--comment="))
    assert told is not None
    assert (told.mpijob, told.name) == (UID, "solve")
    assert not [word for word in words if word.startswith("--dependency")]


def test_the_number_of_a_cluster_with_a_name_is_the_number_alone(host: FakeHost, reader: JobReader) -> None:
    host.replies["sbatch"] = "71;bed\n"
    assert reader.jobs.files(reader.find(send(reader, a_plan()))).number == "71"


@pytest.mark.parametrize(
    ("entry", "clause"),
    [("prep", "afterok:40"), ("any:prep", "afterany:40"), ("failed:prep", "afternotok:40")],
)
def test_a_job_that_waits_for_another_says_how_that_must_end(
    host: FakeHost, reader: JobReader, entry: str, clause: str
) -> None:
    other(host, "prep", "40", "aa")
    send(reader, waiting(entry))
    assert {f"--dependency={clause}", "--kill-on-invalid-dep=yes"} <= {*asked(host)}


def test_several_jobs_must_all_end_as_wanted(host: FakeHost, reader: JobReader) -> None:
    other(host, "prep", "40", "aa")
    other(host, "clean", "41", "bb")
    send(reader, waiting("prep", "any:clean"))
    assert "--dependency=afterok:40,afterany:41" in asked(host)


def test_a_job_of_plain_sbatch_can_be_waited_for(host: FakeHost, reader: JobReader) -> None:
    host.replies["squeue"] = squeue({"%A": "50", "%j": "relax"})
    send(reader, waiting("relax-50"))
    assert "--dependency=afterok:50" in asked(host)


def test_a_job_that_waits_for_one_that_is_not_there_is_not_submitted(
    host: FakeHost, reader: JobReader
) -> None:
    with pytest.raises(NotFound):
        send(reader, waiting("prep"))
    assert host.count("sbatch") == 0
    assert reader.jobs.all() == []


def test_a_job_that_slurm_has_no_number_for_yet_cannot_be_waited_for(
    host: FakeHost, reader: JobReader
) -> None:
    other(host, "prep", "", "aa")
    with pytest.raises(BackendError, match="prep"):
        send(reader, waiting("prep"))
    assert host.count("sbatch") == 0


def test_the_same_plan_once_more_is_the_same_job(host: FakeHost, reader: JobReader) -> None:
    plan = a_plan()
    assert send(reader, plan) == send(reader, plan)
    assert host.count("sbatch") == 1


def test_a_name_in_use_is_a_conflict(host: FakeHost, reader: JobReader) -> None:
    job = Submitted(host, a_plan(uid="aa"), "40")
    job.began()
    host.replies["squeue"] = squeue({"%A": "40"})
    with pytest.raises(Conflict, match="solve"):
        send(reader, a_plan())
    job.left(0, 0)
    assert reader.find(send(reader, a_plan())).number == 2
    assert reader.find(JobRef("default", "solve")).created_us / 1e6 > BEGIN


def test_of_two_submits_that_found_the_name_free_the_slower_is_refused(reader: JobReader) -> None:
    first = reader.jobs.claim(a_plan(), 0)
    assert first is not None
    reader.jobs.enter(first)
    assert reader.jobs.claim(a_plan(uid="bb"), 0) is None
    second = reader.jobs.claim(a_plan(uid="bb"), first.number)
    assert second is not None
    assert second.number == 2


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (
            Answer(1, "", "sbatch: error: Batch job submission failed: Invalid partition name specified\n"),
            InvalidJob,
        ),
        (Answer(0, "Submitted batch job\n", ""), BackendError),
        (BackendError("there is no program 'sbatch' here"), BackendError),
    ],
)
def test_a_job_that_slurm_refuses_leaves_nothing_behind(
    host: FakeHost, reader: JobReader, answer: Answer | BackendError, kind: type[MpiJobError]
) -> None:
    host.replies["sbatch"] = answer
    with pytest.raises(kind):
        send(reader, a_plan())
    assert reader.jobs.all() == []
    assert [*(host.root / "jobs").iterdir()] == []
    host.replies["sbatch"] = "71\n"
    assert reader.jobs.files(reader.find(send(reader, a_plan()))).number == "71"


def test_a_job_that_slurm_may_have_taken_stays_and_is_not_submitted_twice(
    host: FakeHost, reader: JobReader
) -> None:
    host.replies["sbatch"] = Answer(1, "", "sbatch: error: Batch job submission failed: Socket timed out\n")
    plan = a_plan()
    with pytest.raises(BackendError) as caught:
        send(reader, plan)
    assert caught.value.passing
    assert "mpijob get solve" in caught.value.hint
    assert reader.jobs.files(reader.find(JobRef("default", "solve"))).number == ""
    assert send(reader, plan).uid == UID
    assert host.count("sbatch") == 1


def test_a_job_of_whose_submit_nobody_told_is_found_by_its_comment_and_can_be_ended(
    host: FakeHost, reader: JobReader, tmp_path: Path
) -> None:
    host.replies |= {"sbatch": BackendError("sbatch did not answer within 30 s", passing=True), "scancel": ""}
    with pytest.raises(BackendError, match="unknown whether Slurm accepted"):
        send(reader, a_plan())
    files = reader.files(JobRef("default", "solve"))
    assert (reader.state(files).phase, files.number) == (Phase.QUEUED, "")
    waits = {"%T": "PENDING", "%r": "Priority", "%k": batch_script.comment(a_job(), UID, "mpich 4.1")}
    host.replies["squeue"] = squeue({"%A": "70"}, {"%A": "71", **waits})
    later = a_reader(host, tmp_path / "later")
    assert "jobs of higher priority" in later.get(JobRef("default", "solve")).message
    assert later.files(JobRef("default", "solve")).number == "71"


@pytest.mark.parametrize(
    "said",
    [
        "sbatch: error: If munged is up, restart with --num-threads=10\n"
        'sbatch: error: Munge encode failed: Failed to connect to "/run/munge/munge.socket.2"\n'
        "sbatch: error: Batch job submission failed: Protocol authentication error\n",
        "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)\n",
    ],
    ids=["no munge", "no controller"],
)
def test_a_job_that_never_reached_slurm_leaves_nothing_and_may_be_submitted_again(
    host: FakeHost, reader: JobReader, said: str
) -> None:
    host.replies["sbatch"] = Answer(1, "", said)
    with pytest.raises(BackendError, match=r"Munge encode failed|controller \(connect failure\)") as caught:
        send(reader, a_plan())
    assert caught.value.passing
    assert "unknown" not in caught.value.message
    assert reader.jobs.all() == []
    host.replies["sbatch"] = "71\n"
    assert reader.jobs.files(reader.find(send(reader, a_plan()))).number == "71"


def test_a_script_of_the_users_own_is_handed_over_with_its_options_where_it_lies(
    host: FakeHost, reader: JobReader, tmp_path: Path
) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "run.sh").write_text("#!/bin/sh\nsrun ./solve\n")
    job = a_job(command=(), script="run.sh", code={"path": str(tmp_path / "code")})
    host.replies["scontrol"] = "JobId=72 StdErr=/x/my err StdOut=/x/my out WorkDir=/x\n"
    ref = send(reader, a_plan(job, launch=("sbatch", "--nodes=2", "run.sh", "a b")))
    words = asked(host)
    assert words[:4] == ("env", "-C", str(tmp_path / "code"), "sbatch")
    assert words[-3:] == ("--nodes=2", "run.sh", "a b")
    files = reader.jobs.files(reader.find(ref))
    assert (files.number, not (files.path / "allocation.sh").exists()) == ("72", True)
    assert b'"StdOut":"/x/my out"' in (files.path / "output.json").read_bytes()
