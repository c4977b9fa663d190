"""Rights that a user lacks on a real cluster, one resource after the other: each is named, the rest is shown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.cluster import faults
from tests.e2e.cluster.faults import left_of
from tests.e2e.cluster.furniture import a_queue
from tests.e2e.cluster.support import PATIENCE, Place, a_job, eventually, own_place

from mpijob import Job
from mpijob.backends.kubernetes.client import resources
from mpijob.errors import NotAllowed
from mpijob.model import Code, Family, Resources, Secret

pytestmark = pytest.mark.testbed
LONG = pytest.mark.long
TINY = Resources(cpu="50m", memory="64Mi")


@pytest.fixture(scope="module")
def place(kubeconfig: Path) -> Iterator[Place]:
    with own_place(kubeconfig, "unseen") as place:
        yield place


@pytest.fixture(scope="module")
def queued(place: Place) -> Iterator[Job]:
    """Return a job of a queue that has ended: everything that can be read of a job is there."""
    with a_queue(place, "2") as queue:
        job = place.succeeded(a_job("shown", "echo hello", resources=TINY, queue=queue))
        eventually(lambda: completed(place, job.name), "its engine says so, too", PATIENCE)
        yield job


def completed(place: Place, name: str) -> bool:
    """Return whether a TrainJob says by itself that it has ended."""
    conditions = (
        place.api.get(resources.TRAINJOB.path(place.namespace, name))["status"].get("conditions") or ()
    )
    return any(one["type"] == "Complete" for one in conditions)


def user_without(place: Place, resource: str, folder: Path) -> Place:
    """Return the place as somebody sees it who lacks the rights to one resource."""
    user = f"without-{resource.replace('/', '-')}"
    if place.find(faults.ROLE, user) is None:
        faults.allow(place, user, faults.rules(place, without=resource))
    return Place(faults.as_user(place.kubeconfig, user, folder), place.namespace, str(folder))


@pytest.mark.req("A-edge-403")
@pytest.mark.parametrize(
    ("resource", "called"),
    [
        ("pods", "'list' permission for Pods"),
        ("pods/log", "'get' permission for log of Pods"),
        ("events", "'list' permission for Events"),
        pytest.param("jobs", "'list' permission for Jobs", marks=LONG),
        pytest.param("jobsets", "'get' permission for JobSets", marks=LONG),
        pytest.param("trainingruntimes", "'get' permission for TrainingRuntimes", marks=LONG),
        pytest.param("workloads", "'list' permission for Workloads", marks=LONG),
    ],
)
def test_what_a_user_may_not_read_is_named_and_the_rest_is_shown(
    place: Place, queued: Job, tmp_path: Path, resource: str, called: str
) -> None:
    theirs = user_without(place, resource, tmp_path)
    shown = theirs.mpijob("describe", queued.name)
    assert shown.returncode == 0, shown.stderr
    assert "Succeeded" in shown.stdout
    assert called in shown.stdout
    assert f"namespace '{place.namespace}'" in shown.stdout
    assert "Succeeded" in theirs.mpijob("list").stdout
    logs = theirs.mpijob("logs", queued.name)
    if resource in ("pods", "pods/log"):
        assert (logs.returncode != 0, called in logs.stderr) == (True, True), logs
    else:
        assert "[Rank-1] hello" in logs.stdout
    events = theirs.mpijob("events", queued.name).stdout
    assert "Submitted" in events
    assert "Succeeded" in events
    assert called in events


@pytest.mark.req("A-edge-403")
def test_a_job_that_may_not_be_seen_is_not_told_as_absent(place: Place, queued: Job, tmp_path: Path) -> None:
    theirs = user_without(place, "trainjobs", tmp_path)
    with pytest.raises(NotAllowed, match="lacks 'list' permission for TrainJobs"):
        theirs.client.state(queued.name)
    page = theirs.client.list()
    assert page.items == ()
    assert "lacks 'list' permission for TrainJobs" in page.notices[0].message
    nobody = Place(faults.as_user(place.kubeconfig, "nobody", tmp_path), place.namespace, str(tmp_path))
    with pytest.raises(NotAllowed, match="lacks 'list' permission for TrainJobs"):
        nobody.client.list()


@pytest.mark.req("A-edge-403")
@pytest.mark.parametrize(
    ("resource", "fields", "words"),
    [
        ("mpijobs", {"mpi": Family.MPICH}, "lacks 'create' permission for MPIJobs"),
        ("configmaps", {"code": Code(files={"x": "y"})}, "missing: create configmaps"),
        ("secrets", {"secrets": (Secret(env="X", source="env:PATH"),)}, "missing: create secrets"),
    ],
)
def test_a_right_that_submitting_lacks_is_named_and_nothing_is_made(
    place: Place, tmp_path: Path, resource: str, fields: dict[str, Any], words: str
) -> None:
    theirs = user_without(place, resource, tmp_path)
    with pytest.raises(NotAllowed) as caught:
        theirs.client.submit(a_job("may-not", resources=TINY, **fields))
    assert words in str(caught.value)
    assert left_of(place, "may-not") == []


@pytest.mark.parametrize("resource", ["trainjobs", "trainingruntimes"])
def test_a_job_goes_to_the_engine_that_the_user_has_the_rights_for(
    place: Place, tmp_path: Path, resource: str
) -> None:
    theirs = user_without(place, resource, tmp_path)
    plan = theirs.client.plan(a_job("elsewhere", resources=TINY))
    assert [one["kind"] for one in plan.documents] == ["MPIJob"]
