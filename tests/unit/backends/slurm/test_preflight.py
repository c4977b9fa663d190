"""What is asked before a job is planned: every command once, and remembered for the next job."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.unit.slurm_support import BEGIN, FakeHost, Submitted, a_job, a_plan, a_reader, squeue

from mpijob.backends.slurm import preflight
from mpijob.backends.slurm.host import Answer
from mpijob.errors import BackendError
from mpijob.formats.slurm import cluster_facts
from mpijob.model import Facts, Phase

PARTITIONS = (
    "PartitionName=main Default=YES MaxTime=1-00:00:00 DefaultTime=00:10:00 State=UP TotalCPUs=16 TotalNodes=4\n"
    "PartitionName=short Default=NO MaxTime=00:05:00 State=UP TotalCPUs=4 TotalNodes=1\n"
)
SILENT = Answer(1, "", "slurm_load_partitions: Unable to contact slurm controller (connect failure)\n")
DATABASE = Answer(1, "", "sacctmgr: error: Problem talking to the database: Connection refused\n")
WAITS = {"%T": "PENDING", "%r": "Resources", "%N": "", "%S": "N/A"}


def sinfo(argv: Sequence[str]) -> str:
    """Return the idle CPUs of a partition, or what each of two nodes has (two of four CPUs are allocated)."""
    if "--Format" not in " ".join(argv):
        return "main|2/6/0/8\n"
    cells = ("idle", "2/2/0/4", "8192", "1024", "(null)", "(null)", "(null)")
    return "".join(
        "".join(cell.ljust(255) for cell in ("main", node, *cells)) + "\n" for node in ("n1", "n2")
    )


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(
        tmp_path / "root",
        scontrol=lambda argv: "ClusterName = bed\n" if "config" in argv else PARTITIONS,
        sinfo=sinfo,
        srun=Answer(0, "", "MPI plugin types are...\n\tnone\n\tpmi2\n"),  # it answers on its standard error
        sacctmgr="",
        squeue=squeue({}),
        sacct="",
    )


def facts(host: FakeHost, *after: str, partition: str = "", fresh: bool = False) -> Facts:
    """Return the facts as a process of its own finds them, for a job that waits for others."""
    reader = a_reader(host, host.root.parent)
    wanted = a_job(name="next", after=after)
    return preflight.facts(wanted, reader, partition, "alice", fresh=fresh, most_workers=50)


def test_every_command_is_asked_once_and_its_answer_is_judged(host: FakeHost) -> None:
    found = facts(host)
    commands = cluster_facts.commands("alice")
    assert [host.asked.count(argv) for argv in commands.values()] == [1] * len(commands)
    assert found.slurm is not None
    assert (found.place, found.slurm.cluster, found.slurm.mpi) == (
        "Slurm partition main",
        "bed",
        ("none", "pmi2"),
    )
    assert (found.room_known, found.capacity.cores, found.free.cores) == (True, 8.0, 4.0)
    assert (found.max_workers, found.recalled) == (50, False)


def test_the_next_process_asks_only_once_what_was_said_is_old_or_fresh_facts_are_wanted(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts(host)
    assert (facts(host).recalled, host.count("sacctmgr")) == (True, 2)
    assert (facts(host, fresh=True).recalled, host.count("sacctmgr")) == (False, 4)
    later = time.time() + 21
    monkeypatch.setattr(time, "time", lambda: later)
    assert (facts(host).recalled, host.count("sacctmgr")) == (False, 6)


def test_what_was_remembered_holds_for_every_partition(host: FakeHost) -> None:
    facts(host)
    found = facts(host, partition="short")
    assert (found.place, found.recalled) == ("Slurm partition short", True)


def test_a_command_that_fails_is_left_out_and_named(host: FakeHost) -> None:
    host.replies["sacctmgr"] = DATABASE
    host.replies["sinfo"] = SILENT
    found = facts(host)
    assert found.slurm is not None
    assert found.slurm.unread == ("accounts", "QOS", "nodes")
    assert (found.place, found.room_known) == ("Slurm partition main", False)


@pytest.mark.parametrize("answer", [SILENT, BackendError("there is no program 'scontrol' here")])
def test_without_partitions_nothing_is_planned_or_remembered(
    host: FakeHost, answer: Answer | BackendError
) -> None:
    works, host.replies["scontrol"] = host.replies["scontrol"], answer
    with pytest.raises(BackendError, match=r"is not responding|no program"):
        facts(host)
    host.replies["scontrol"] = works
    assert not facts(host).recalled


def test_fresh_facts_say_how_many_jobs_wait(host: FakeHost) -> None:
    host.replies["squeue"] = squeue({}, {"%A": "68", **WAITS}, {"%A": "69", **WAITS})
    assert (facts(host).waiting_jobs, facts(host, fresh=True).waiting_jobs) == (0, 2)


def test_a_job_that_fits_into_the_idle_cpus_is_expected_to_start_now(host: FakeHost) -> None:
    host.replies["squeue"] = ""
    assert facts(host).wait_estimate_seconds == 0


def test_behind_jobs_of_others_nobody_knows_when_a_job_starts(host: FakeHost) -> None:
    host.replies["squeue"] = squeue({"%A": "68", **WAITS, "%r": "Priority"})
    found = facts(host)
    assert found.wait_estimate_seconds is None
    assert "you may not see" in found.wait_basis


def test_each_job_that_is_waited_for_is_told_with_where_it_stands(host: FakeHost) -> None:
    done = Submitted(host, a_plan(a_job(name="prep"), uid="aa"), "60", BEGIN)
    done.began()
    done.left(0, 0)
    prep, nobody = facts(host, "prep", "any:nobody").dependencies
    assert (prep.ref.uid, prep.phase) == ("aa", Phase.SUCCEEDED)
    assert (nobody.ref.name, nobody.phase) == ("nobody", None)
    host.replies["squeue"] = SILENT
    with pytest.raises(BackendError, match="not responding"):  # it may exist
        facts(host, "relax-50")
