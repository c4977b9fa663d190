"""Where workers may run is obeyed by the real scheduler: on fake nodes in two zones, whose pods run nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from testbed import kwok, manifests, processes
from tests.e2e.cluster.support import PATIENCE, Place, a_job, eventually, own_place

from mpijob import Phase
from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.resources import Kind
from mpijob.errors import QuotaExceeded
from mpijob.model import Placement, Resources, Topology

pytestmark = [pytest.mark.testbed, pytest.mark.alone]
ZONE = "topology.kubernetes.io/zone"
ZONES = {f"fake-{number}": "north" if number <= 3 else "south" for number in range(1, 7)}
FAKE = {"type": "kwok"}
TOLERATED = ({"key": "kwok.x-k8s.io/node", "operator": "Exists"},)
PRIORITY_CLASS = Kind("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", namespaced=False)


@pytest.fixture(scope="module")
def place(kubeconfig: Path) -> Iterator[Place]:
    """Return a place whose cluster has six fake nodes, three in each zone; they are gone afterwards."""
    there = processes.is_running("kwok")
    kwok.up(len(ZONES))
    with own_place(kubeconfig, "placement") as place:
        for node, zone in ZONES.items():
            place.api.patch(resources.NODE.path("", node), {"metadata": {"labels": {ZONE: zone}}})
        yield place
    if not there:
        kwok.down()


def nodes_of(place: Place, placement: Placement, **fields: Any) -> list[str]:
    """Return the nodes that the workers of a job of three got, its launcher's last."""
    fields.setdefault("resources", Resources(cpu="100m", memory="64Mi"))
    job = place.client.submit(
        a_job("placed", workers=3, placement=placement, labels={manifests.FOR_EVER: "yes"}, **fields)
    )
    state = job.wait(PATIENCE, {Phase.RUNNING})
    nodes = [one.node for one in state.workers] + [place.launcher(job)["spec"]["nodeName"]]
    job.delete(0)
    eventually(lambda: not place.pods(job), "its pods are deleted")
    return nodes


def wanted(**fields: Any) -> Placement:
    return Placement(**{"node_selector": FAKE, "tolerations": TOLERATED} | fields)


def away_from(zone: str) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": ZONE, "operator": "NotIn", "values": [zone]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


@pytest.mark.req("FR-029", "FR-SEC-006")
@pytest.mark.parametrize(
    ("placement", "holds"),
    [
        pytest.param(
            wanted(node_selector=FAKE | {ZONE: "south"}),
            lambda nodes: {ZONES[node] for node in nodes} == {"south"},
            id="selector",
        ),
        pytest.param(
            wanted(affinity=away_from("north")),
            lambda nodes: {ZONES[node] for node in nodes} == {"south"},
            id="affinity",
        ),
        pytest.param(
            wanted(exclude_nodes=("fake-1", "fake-2", "fake-4", "fake-5", "fake-6")),
            lambda nodes: set(nodes) == {"fake-3"},
            id="excluded",
        ),
        pytest.param(wanted(topology=Topology.SPREAD), lambda nodes: len(set(nodes[:3])) == 3, id="spread"),
        pytest.param(
            wanted(topology=Topology.PACKED_NODE), lambda nodes: len(set(nodes[:3])) == 1, id="one-node"
        ),
        pytest.param(
            wanted(topology=Topology.PACKED_ZONE),
            lambda nodes: len({ZONES[node] for node in nodes[:3]}) == 1,
            id="one-zone",
        ),
    ],
)
def test_the_scheduler_obeys(place: Place, placement: Placement, holds: Callable[[list[str]], bool]) -> None:
    """Data stays where selectors say; workers are as close together or apart as was asked for."""
    nodes = nodes_of(place, placement)
    assert holds(nodes), nodes


@pytest.mark.req("FR-029")
def test_a_node_that_repels_is_only_for_those_who_tolerate_it(place: Place) -> None:
    with pytest.raises(QuotaExceeded, match=r"6 tainted kwok\.x-k8s\.io/node"):
        place.client.submit(a_job("repelled", placement=Placement(node_selector=FAKE)))


@pytest.mark.req("FR-029")
def test_a_priority_class_reaches_the_pods(place: Place) -> None:
    body = {
        "apiVersion": PRIORITY_CLASS.api,
        "kind": PRIORITY_CLASS.name,
        "metadata": {"name": place.namespace},
    }
    place.api.create(PRIORITY_CLASS.path(), body | {"value": 1234})
    try:
        job = place.client.submit(a_job("urgent", placement=wanted(), priority=place.namespace))
        pods = eventually(lambda: place.pods(job), "its pods are made")
        assert {pod["spec"]["priority"] for pod in pods} == {1234}
        job.delete(0)
    finally:
        place.api.delete(PRIORITY_CLASS.path("", place.namespace))
