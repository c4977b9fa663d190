"""What checks say about groups of workers."""

from __future__ import annotations

from typing import Any

import pytest

from mpijob import checks
from mpijob.checks.groups import MOST_GROUPS
from mpijob.errors import Finding
from mpijob.model import Elastic, Launch, MPIJob, Resources, WorkerGroup

CPU = WorkerGroup(name="cpu", workers=2, slots=4)


def a_job(*groups: WorkerGroup, **fields: Any) -> MPIJob:
    base: dict[str, Any] = {"name": "bert", "command": ("python", "train.py"), "workers": 6, "groups": groups}
    return MPIJob(**base | fields)


def found(job: MPIJob, code: str = "BAD_GROUPS") -> list[Finding]:
    return [finding for finding in checks.run(job) if finding.code == code]


def test_a_job_with_groups_has_no_findings() -> None:
    gpus = WorkerGroup(name="gpu", workers=4, resources=Resources(cpu=2, memory="4Gi", gpu=1))
    assert checks.run(a_job(CPU, workers=3, resources=Resources(cpu=4))) == ()
    assert checks.run(a_job(CPU, gpus)) == (), "all workers may be in groups"


@pytest.mark.parametrize("name", ["", "Cpu", "-a", "a_b", "1a", "a" * 21, "launcher", "node", "worker"])
def test_the_name_of_a_group_is_a_short_label_that_no_other_pod_has(name: str) -> None:
    (finding,) = found(a_job(WorkerGroup(name=name, workers=1)))
    assert finding.field == "groups[0].name"


@pytest.mark.parametrize("workers", [0, -1])
def test_a_group_without_workers_is_refused(workers: int) -> None:
    assert [one.field for one in found(a_job(WorkerGroup(name="a", workers=workers)))] == [
        "groups[0].workers"
    ]


def test_two_groups_of_one_name_are_refused() -> None:
    (finding,) = found(a_job(CPU, CPU))
    assert (finding.field, finding.message) == ("groups", "2 groups are named 'cpu'")


def test_the_workers_of_all_groups_are_counted_and_the_fix_is_their_sum() -> None:
    job = a_job(CPU, WorkerGroup(name="gpu", workers=5))
    (finding,) = found(job)
    assert finding.message == "the groups have 7 workers (2 cpu + 5 gpu), but the job has 6"
    assert [fix.patch for fix in finding.fixes] == [{"workers": 7}]


def test_there_are_at_most_as_many_groups_as_a_queue_admits_together() -> None:
    many = tuple(WorkerGroup(name=f"g{at}", workers=1) for at in range(MOST_GROUPS + 1))
    assert [one.field for one in found(a_job(*many, workers=30))] == ["groups"]
    assert found(a_job(*many[:-1], workers=30)) == []


def test_elastic_jobs_have_no_groups() -> None:
    (finding,) = found(a_job(CPU, elastic=Elastic(max_workers=8), command=("horovodrun", "a")))
    assert "elastic cannot be used with groups" in finding.message


def test_the_gpus_of_a_job_are_of_one_kind() -> None:
    amd = WorkerGroup(name="amd", workers=1, resources=Resources(gpu=1, gpu_kind="amd.com/gpu"))
    (finding,) = found(a_job(amd, resources=Resources(gpu=1)))
    assert "GPUs of 2 kinds" in finding.message
    assert found(a_job(amd)) == [], "workers without GPUs have no kind"


def test_what_is_wrong_with_one_worker_is_told_of_each_group_with_its_field() -> None:
    bad = WorkerGroup(name="bad", workers=1, slots=0, resources=Resources(cpu="x", gpu=9))
    fields = {finding.field for finding in checks.run(a_job(CPU, bad))}
    assert {"groups[1].slots", "groups[1].resources.cpu", "groups[1].resources.gpu"} <= fields


def test_what_is_wrong_with_the_job_itself_is_told_once() -> None:
    assert [one.field for one in found(a_job(CPU, resources=Resources(cpu="x")), "BAD_AMOUNT")] == [
        "resources.cpu"
    ]


def test_ranks_are_held_against_the_slots_of_all_groups() -> None:
    assert found(a_job(CPU, ranks=12), "BAD_RANKS") == []
    (finding,) = found(a_job(CPU, ranks=13), "BAD_RANKS")
    assert "4 workers × 1 slot + 2 workers × 4 slots = 12" in finding.message


def test_one_rank_for_each_worker_in_turn_requires_equal_slots() -> None:
    job = a_job(CPU, launch=Launch(map_by="node"))
    assert [one.field for one in found(job, "BAD_LAYOUT")] == ["launch.map_by"]
    assert found(a_job(CPU, slots=4, launch=Launch(map_by="node")), "BAD_LAYOUT") == []
