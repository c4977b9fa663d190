"""A job that hangs on a real cluster: its ranks' stacks through exec, its warnings, and its support bundle."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.e2e.cluster.governed import controller
from tests.e2e.cluster.support import PATIENCE, Place, a_job, a_program, eventually, own_place

from mpijob import Client, Job
from mpijob.backends.kubernetes.backend import KubernetesBackend
from mpijob.backends.kubernetes.client import resources
from mpijob.errors import NotFound
from mpijob.model import StackReport
from mpijob.model.status.stacks import Lack, Means

CANARY = "canary-77ab12"
STUCK = f"""
import sys, time
from mpi4py import MPI

def load_batch():
    time.sleep(600)

print("begun", flush=True)
print("the token is {CANARY}-env, password={CANARY}-said", flush=True)
if MPI.COMM_WORLD.rank == 1:
    load_batch()
MPI.COMM_WORLD.Barrier()
"""
TALKS = 'i=0; while [ "$MPIJOB_RANK" != 1 ] || [ $i -lt 8 ]; do echo line $i; i=$((i+1)); sleep 0.3; done; sleep 600'


@pytest.fixture(scope="module")
def place(kubeconfig: Path) -> Iterator[Place]:
    with own_place(kubeconfig, "hang") as place:
        yield place


@pytest.fixture(scope="module")
def others(place: Place) -> dict[str, Job]:
    """Start the jobs that tests come to later: one whose rank 1 falls silent, and two that fail alike."""
    talker = a_job("talks", TALKS, workers=1, slots=3)
    failing = (a_job(f"fails-{number}", "exit 3", workers=1) for number in range(2))
    return {job.name: place.client.submit(job) for job in (talker, *failing)}


@pytest.fixture(scope="module")
def stuck(place: Place, others: dict[str, Job]) -> Job:
    """Return a job of which one rank never comes to the barrier."""
    return place.busy(a_program("stuck", STUCK, slots=2, env={"API_TOKEN": f"{CANARY}-env"}))


def look(job: Job, wanted: str, *, bring: bool = False) -> StackReport:
    def found() -> StackReport | None:
        report = job.stacks(bring=bring)
        return report if wanted in report.summary else None

    return eventually(found, wanted)


@pytest.mark.req("C-exec", "Q13")
def test_without_tools_in_the_image_the_kernel_tells_where_ranks_are(stuck: Job) -> None:
    report = look(stuck, "rank 1 sleeping in the system call clock_nanosleep")
    assert [(stack.rank, stack.worker) for stack in report.stacks] == [(0, 0), (1, 0), (2, 1), (3, 1)]
    assert {stack.means for stack in report.stacks} == {Means.PROC}
    assert {stack.lack for stack in report.stacks} == {Lack.NO_PYSPY}
    with pytest.raises(NotFound, match="rank 9"):
        stuck.stacks(ranks=(9,))


@pytest.mark.req("C-exec", "Q13")
def test_py_spy_that_is_brought_along_names_the_rank_that_is_missing_under_restricted_pod_security(
    stuck: Job,
) -> None:
    report = look(stuck, "ranks 0, 2-3 in MPI_Barrier, rank 1 in load_batch", bring=True)
    assert {stack.means for stack in report.stacks} == {Means.PYSPY}
    assert report.remarks == (
        "rank 1 has not reached MPI_Barrier, where ranks 0, 2-3 wait: check rank 1 first",
    )
    assert look(stuck, "rank 1 in load_batch").lacks == ()  # it stays as long as the pods do


@pytest.mark.req("PMV-013")
def test_a_job_that_has_just_begun_worries_nobody(stuck: Job) -> None:
    assert stuck.warnings() == ()


@pytest.mark.req("PMV-013")
def test_a_rank_that_falls_silent_in_a_pod_is_named(place: Place, others: dict[str, Job]) -> None:
    impatient = msgspec.structs.replace(place.settings, warn_after_seconds=4.0)
    with Client(KubernetesBackend(impatient), settings=impatient) as client:
        job = client.get("talks")
        (found,) = eventually(job.warnings, "the silent rank is told")
    assert (found.code, found.rank, found.worker) == ("RANK_SILENT", 1, 0)


@pytest.mark.req("PMV-013")
def test_the_controller_tells_of_a_silent_rank_while_nobody_asks(
    place: Place, others: dict[str, Job]
) -> None:
    with controller(place, MPIJOB_WARN_AFTER_SECONDS="4"):
        path = resources.EVENT.path(place.namespace)

        def told() -> list[str]:
            events = place.api.list(path, fields="reason=RANK_SILENT").items
            return [one["message"] for one in events if one["involvedObject"]["name"] == "talks"]

        (message,) = eventually(told, "the silent rank is told by an Event")
    assert message.startswith("Rank 1 on worker 0 has printed nothing for")


@pytest.mark.req("C-fleet")
def test_jobs_that_failed_alike_on_the_cluster_are_one_pattern(place: Place, others: dict[str, Job]) -> None:
    for name in ("fails-0", "fails-1"):
        others[name].wait(PATIENCE)
    (found,) = place.client.patterns().patterns
    assert found.message == f"2 jobs failed in the last hour with {found.code} in namespace {place.namespace}"
    assert found.code == "RANK_EXIT"


@pytest.mark.security
def test_the_bundle_of_a_cluster_job_holds_all_parts_and_no_secret(stuck: Job, tmp_path: Path) -> None:
    made = stuck.bundle(tmp_path / "b.tar.gz", stacks=True)
    with tarfile.open(made.path) as packed:
        files = {one.name.partition("/")[2]: packed.extractfile(one) for one in packed.getmembers()}
        texts = {name: file.read() for name, file in files.items() if file is not None}
    assert {name for name, text in texts.items() if CANARY.encode() in text} == set()
    assert {
        "spec.yaml",
        "plan.json",
        "events.jsonl",
        "stacks.json",
        "doctor.json",
        "logs/rank-3.log",
    } <= texts.keys()
    assert b"begun" in texts["logs/rank-0.log"]
    assert b"TrainJob" in texts["plan.json"]
    assert b"WorldProved" in texts["events.jsonl"]
