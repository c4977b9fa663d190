"""Groups of workers as engines are told of them, and what no engine can do of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.cluster_support import a_job
from tests.unit.properties import examples
from tests.unit.shell_support import Pod, a_pod

from mpijob.errors import InvalidJob, Unsupported
from mpijob.formats.kubernetes import mpijob, trainjob
from mpijob.formats.kubernetes.metadata import well_known, worker_groups
from mpijob.formats.kubernetes.metadata.well_known import Shape
from mpijob.formats.launch import batch_environment, hostfile
from mpijob.formats.sizing import engine_selection
from mpijob.model import Family, Launch, MPIJob, Resources, Role, WorkerGroup

CPU = WorkerGroup(name="cpu", workers=2, slots=4, resources=Resources(cpu=4, memory="8Gi"))
pod = pytest.fixture(a_pod)
MANY = 2**31 - 1  # the largest number that fits into a field of an object


def of_groups(*groups: WorkerGroup, **fields: Any) -> MPIJob:
    return a_job(**{"workers": 3, "slots": 1, "ranks": None, "groups": groups or (CPU,)} | fields)


@st.composite
def jobs(draw: st.DrawFn) -> MPIJob:
    numbers = st.integers(1, 4)
    count = draw(st.integers(0, 3))
    groups = tuple(
        WorkerGroup(name=f"g{at}", workers=draw(numbers), slots=draw(st.none() | numbers))
        for at in range(count)
    )
    workers = sum(group.workers for group in groups) + draw(st.integers(0 if groups else 1, 3))
    mapping = draw(st.sampled_from(["", "slot", "node", "socket"]))
    ranks = draw(st.none() | st.integers(1, 40))
    return a_job(
        workers=workers, slots=draw(numbers), ranks=ranks, groups=groups, launch=Launch(map_by=mapping)
    )


def one_by_one(job: MPIJob) -> list[list[int]]:
    """Return the ranks of each worker as a launcher deals them out."""
    slots = [job.part_of(worker).job.slots for worker in range(job.workers)]
    by_slot = [worker for worker, count in enumerate(slots) for _ in range(count)]
    turns = {"node": [*range(job.workers)], "socket": []}.get(job.launch.map_by, by_slot)
    ranks: list[list[int]] = [[] for _ in slots]
    for rank in range(job.world if turns else 0):
        ranks[turns[rank % len(turns)]].append(rank)
    return ranks


@settings(max_examples=examples(200), deadline=None)
@given(jobs())
def test_each_rank_is_planned_where_a_launcher_puts_it(job: MPIJob) -> None:
    wanted = one_by_one(job)
    placed = hostfile.place_ranks(job, [f"w{worker}" for worker in range(job.workers)])
    assert [[*worker.ranks] for worker in placed] == wanted
    assert [worker.group for worker in placed] == [job.part_of(at).group for at in range(job.workers)]
    counts = [ranks for ranks, workers in hostfile.rank_counts(job) for _ in range(workers)]
    assert counts == ([] if job.launch.map_by == "socket" else [len(ranks) for ranks in wanted])


def test_what_is_written_is_as_short_for_any_number_of_workers() -> None:
    many = WorkerGroup(name="many", workers=MANY, slots=512)
    for job in (of_groups(many, workers=MANY + 1), a_job(workers=MANY, slots=MANY)):
        runtime, trained = trainjob.write(job)
        assert len(str(runtime)) + len(str(trained)) < 200_000
        assert trainjob.read((runtime, trained)).job == job
        assert len(str(batch_environment.variables(job, uid="1"))) < 2000
    assert hostfile.rank_counts(of_groups(many, workers=MANY + 1)) == ((1, 1), (512, MANY))


def test_the_launcher_is_told_the_pods_and_the_ranks_of_each_group() -> None:
    runtime, _ = trainjob.write(of_groups())
    launcher = trainjob.pod_templates(runtime)["launcher"]["spec"]["containers"][0]
    env = {one["name"]: one.get("value") for one in launcher["env"]}
    assert env["MPIJOB_GROUPS"] == "node:1:1 cpu:2:4"
    assert env["MPIJOB_RANKS_PLANNED"] == "1:1 4:2"


@pytest.mark.parametrize(
    ("planned", "said"),
    [
        ("2:2", ""),
        ("1:1 3:1", "worker localhost has 2 ranks, and 1 are planned"),
        ("2:1 3:1", "worker 127 has 2 ranks, and 3 are planned"),
    ],
)
def test_the_census_compares_each_worker_with_the_plan_of_its_group(
    pod: Pod, planned: str, said: str
) -> None:
    pod.ranks("localhost", "localhost", "127", "127")
    done = pod.launch("mpirun", "program", MPIJOB_RANKS_PLANNED=planned, MPIJOB_MOST="3")
    assert said in done.stderr
    assert (done.returncode == 0) == (not said)


def test_the_mpi_operator_refuses_groups_and_says_why() -> None:
    with pytest.raises(InvalidJob, match="workers that are all alike") as caught:
        mpijob.write(of_groups(), Shape(family=Family.OPENMPI))
    assert [finding.field for finding in caught.value.findings] == ["groups"]
    assert "Kubeflow Trainer" in caught.value.hint


SERVED = {trainjob.API, engine_selection.JOBSET_API, mpijob.API}


@pytest.mark.parametrize(
    ("served", "family", "reason"),
    [
        (SERVED, Family.MPICH, "groups require Kubeflow Trainer"),
        (SERVED, Family.INTEL, "groups require Kubeflow Trainer"),
        ({mpijob.API}, Family.OPENMPI, "not installed on this cluster"),
    ],
)
def test_where_trainer_cannot_be_used_groups_are_refused(
    served: set[str], family: Family, reason: str
) -> None:
    with pytest.raises(Unsupported, match=reason) as caught:
        engine_selection.choose(of_groups(mpi=family), served)
    assert "mpi: openmpi" in caught.value.hint


def test_a_job_with_groups_goes_to_trainer() -> None:
    assert engine_selection.choose(of_groups(), SERVED).engine is engine_selection.Engine.TRAINER


def test_the_groups_of_an_object_are_told_by_its_annotation() -> None:
    found = worker_groups.read(worker_groups.written(of_groups()))
    assert found == worker_groups.of(of_groups())
    assert [one.hosts("bert") for one in found] == [("bert-node-0-0",), ("bert-cpu-0-0", "bert-cpu-0-1")]
    assert worker_groups.written(a_job()) == {}


@pytest.mark.parametrize(
    "text",
    [
        "", "x", "{}", "[[]]", '[["a",0,0,1]]', '[["a",0,-1,1]]', '[["a",1,1,1]]', '[["a",0,1,0]]',
        f'[["a",0,{MANY},1]]', '[["a",0,9999,1],["b",9999,9999,1]]', '[["a",0,1e9,1]]', "[" * 10_000,
    ],
)  # fmt: skip
def test_an_annotation_that_makes_no_sense_tells_of_no_groups(text: str) -> None:
    assert worker_groups.read({well_known.GROUPS_ANNOTATION: text}) == ()


def test_each_group_has_pods_of_its_own_resources() -> None:
    runtime, _ = trainjob.write(of_groups())
    pods = trainjob.pod_templates(runtime)
    asked = {
        name: pods[name]["spec"]["containers"][0]["resources"]["requests"]["memory"]
        for name in ("node", "cpu")
    }
    assert asked == {"node": str(a_job().resources.memory), "cpu": "8Gi"}
    assert pods["cpu"]["metadata"]["labels"][well_known.GROUP_LABEL] == "cpu"
    assert {Role.LAUNCHER.value, "node", "cpu"} == pods.keys()
