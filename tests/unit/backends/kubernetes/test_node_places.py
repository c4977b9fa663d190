"""Where nodes stand: zone and rack by their labels, by the record where nodes may not be read, else nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from tests.unit.api_support import served
from tests.unit.history_support import a_spec, a_state, encoded
from tests.unit.kube_store import Store

from mpijob.backends.capabilities import SupportsNodePlaces
from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api_errors import ApiError
from mpijob.backends.kubernetes.recorder import snapshot
from mpijob.backends.kubernetes.status import node_places
from mpijob.backends.memory import MemoryBackend
from mpijob.client import Client
from mpijob.history.archive import Archive
from mpijob.history.archive_reader import ArchiveReader, open_archive
from mpijob.history.records import Fact
from mpijob.model import JobRef, JobState, MPIJob, Phase, RankState, WorkerState
from mpijob.model.status.records import NodePlace

pytestmark = pytest.mark.req("FR-UI-003", "PMV-007")
ZONE, RACK = "topology.kubernetes.io/zone", "topology.kubernetes.io/rack"
NODES = {
    "n1": {ZONE: "eu-1a", RACK: "r7"},
    "n2": {ZONE: "eu-1b", "cloud.provider.com/topology-rack": "r9"},
    "n3": {"kubernetes.io/hostname": "n3"},
}


def a_store() -> Store:
    store = Store()
    for name, labels in NODES.items():
        store.objects[resources.NODE.path("", name)] = {"metadata": {"name": name, "labels": labels}}
    return store


def test_labels_of_nodes_say_where_they_stand() -> None:
    store = a_store()
    found = node_places.read(store, ["n2", "n1", "n3", "gone", "n1"])
    assert sorted(found) == [NodePlace("n1", "eu-1a", "r7"), NodePlace("n2", "eu-1b", "r9"), NodePlace("n3")]
    assert len(store.asked) == 4
    assert {method for method, _ in store.asked} == {"GET"}
    assert node_places.read(store, []) == ()


def test_who_may_not_read_nodes_asks_once_and_knows_nothing() -> None:
    store = a_store()

    def refuse(method: str, path: str) -> None:
        raise ApiError("nodes are forbidden", status=403, reason="Forbidden")

    store.before = refuse
    assert node_places.read(store, ["n1", "n2", "n3"]) == ()
    assert len(store.asked) == 1


def test_what_the_recorder_keeps_of_a_node_says_where_it_stands() -> None:
    kept = snapshot.node_fact({"metadata": {"labels": NODES["n1"] | {"other": "x"}}})
    assert kept["labels"] == NODES["n1"]


class OfNodes(MemoryBackend, SupportsNodePlaces):
    """An engine with one job on three nodes, and with a record that knows one of them."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        archive = Archive(str(directory))
        self.state = a_state(phase=Phase.RUNNING)
        archive.put_job(self.state, now=3.0, spec=encoded(a_spec()))
        archive.add_facts(
            self.state.ref.key, [Fact("node", name, 1.0, {"labels": NODES[name]}) for name in ("n1", "n3")]
        )
        archive.close()
        self._past = open_archive(str(directory))
        self.asked: list[list[str]] = []

    def get(self, ref: JobRef) -> JobState:
        workers = tuple(
            WorkerState(index, f"w-{index}", Phase.RUNNING, node=f"n{index + 1}") for index in range(2)
        )
        ranks = (RankState(0, 0, node="n3"),)
        return msgspec.structs.replace(self.state, workers=workers, ranks=ranks)

    def history(self) -> ArchiveReader | None:  # type: ignore[override] # the twin in memory has none
        return self._past

    def node_places(self, names: Sequence[str]) -> tuple[NodePlace, ...]:
        self.asked.append([*names])
        return node_places.read(a_store(), names)


def test_the_record_is_asked_first_and_the_cluster_for_the_rest(tmp_path: Path) -> None:
    backend = OfNodes(tmp_path)
    with Client(backend) as client:
        assert client.nodes(backend.state.ref) == (
            NodePlace("n1", "eu-1a", "r7"),
            NodePlace("n2", "eu-1b", "r9"),
        )
    assert backend.asked == [["n2"]]


def test_an_engine_of_one_machine_has_no_zones() -> None:
    backend = MemoryBackend()
    with Client(backend) as client:
        client.run(MPIJob(name="train", workers=2, command=("true",)))
        assert client.nodes("train") == ()
    with served(backend) as stranger:
        assert stranger.get("/trainjobs/default/train/nodes").status_code == 401
        assert stranger.sign_in().get("/trainjobs/default/train/nodes").json() == {"items": []}
