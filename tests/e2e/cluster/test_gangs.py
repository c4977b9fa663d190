"""Gangs of a real second scheduler, each of the two: all workers of a job are placed together, or none of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from testbed import extras, places
from testbed.extras import Extra
from tests.e2e.cluster.governed import install_resources, limits
from tests.e2e.cluster.support import LAUNCHER, Place, a_job, eventually, image, own_place, said, shows

from mpijob import Phase
from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.resources import Kind
from mpijob.model import Resources
from mpijob.model.platform.governance import Gang, GangKind

HALF = Resources(cpu="500m", memory="64Mi")
pytestmark = [pytest.mark.testbed, pytest.mark.alone, pytest.mark.long]


class Ganged(NamedTuple):
    """A namespace whose limits name a scheduler, which runs."""

    place: Place
    scheduler: Extra
    group: Kind


COSCHEDULED = (
    GangKind.COSCHEDULING,
    extras.COSCHEDULING,
    Kind("scheduling.x-k8s.io/v1alpha1", "PodGroup", "podgroups"),
)
VOLCANIC = (
    GangKind.VOLCANO,
    extras.VOLCANO,
    Kind("scheduling.volcano.sh/v1beta1", "PodGroup", "podgroups"),
)


@pytest.fixture(scope="module", params=[COSCHEDULED, VOLCANIC], ids=["coscheduling", "volcano"])
def ganged(kubeconfig: Path, request: pytest.FixtureRequest) -> Iterator[Ganged]:
    kind, scheduler, group = request.param
    with own_place(kubeconfig, "gangs") as place, extras.running(scheduler):
        install_resources(place)
        with limits(place, gang=Gang(kind=kind)):
            yield Ganged(place, scheduler, group)


@pytest.mark.req("R7", "E-gang")
def test_a_namespace_whose_limits_name_a_scheduler_has_its_jobs_placed_by_it(ganged: Ganged) -> None:
    place = ganged.place
    job = place.client.submit(a_job("together", "echo joined", image=image("openmpi5")))
    group = eventually(lambda: place.find(ganged.group, "together"), "the engine has made a group")
    assert group["spec"]["minMember"] == 3
    eventually(lambda: len(place.pods(job)) == 3, "its pods", 60)
    assert {pod["spec"]["schedulerName"] for pod in place.pods(job)} == {ganged.scheduler.name}
    assert job.wait(120).phase is Phase.SUCCEEDED
    assert said(job) == {0: ["joined"], 1: ["joined"]}
    job.delete(0)


@pytest.mark.req("R7", "E-gang", "SC-014")
def test_workers_for_which_there_is_no_room_together_are_not_placed_one_by_one(ganged: Ganged) -> None:
    place = ganged.place
    blocker = _blocker(place, _free_millicores(place) - 700)
    place.apply(blocker)
    place.kubectl("wait", "pod/blocker", "--for=condition=Ready", "--timeout=60s")
    job = place.client.submit(
        a_job("crowded", "true", resources=HALF, launcher=LAUNCHER, gang_timeout_seconds=15.0)
    )
    eventually(lambda: len(_unplaced(place)) == 3, "none of its pods is placed", 60)
    assert not any(pod["spec"].get("nodeName") for pod in place.pods(job))
    state = shows(job, lambda now: now.phase is Phase.PENDING and bool(now.findings), "says why", 60)
    assert state.findings[0].code in ("UNSCHEDULABLE", "GANG_TIMEOUT", "WAITING")
    assert job.wait(90).phase is Phase.FAILED
    job.delete(0)


def _unplaced(place: Place) -> list[str]:
    pods = place.api.list(resources.POD.path(place.namespace), labels="mpijob.dev/job=crowded").items
    told = [one for pod in pods for one in (pod["status"].get("conditions") or ())]
    return [one["message"] for one in told if one["type"] == "PodScheduled" and one["status"] == "False"]


def _free_millicores(place: Place) -> int:
    node = place.api.get(resources.NODE.path("", places.NODE))
    pods = place.api.list(resources.POD.path(), fields=f"spec.nodeName={places.NODE}").items
    alive = [pod for pod in pods if pod["status"].get("phase") in ("Pending", "Running")]
    asked = [
        (one.get("resources") or {}).get("requests", {}).get("cpu", "0")
        for pod in alive
        for one in pod["spec"]["containers"]
    ]
    return _millicores(node["status"]["allocatable"]["cpu"]) - sum(map(_millicores, asked))


def _millicores(amount: str) -> int:
    return int(amount[:-1]) if amount.endswith("m") else int(float(amount) * 1000)


def _blocker(place: Place, millicores: int) -> dict[str, object]:
    own = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container = {
        "name": "main", "image": image("openmpi4"), "command": ["sleep", "600"], "securityContext": own,
        "resources": {"requests": {"cpu": f"{millicores}m"}},
    }  # fmt: skip
    security = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    spec = {
        "securityContext": security, "containers": [container], "terminationGracePeriodSeconds": 0,
        "nodeSelector": {"kubernetes.io/hostname": places.NODE},
    }  # fmt: skip
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "blocker"}, "spec": spec}
