"""Models of jobs in a real model registry: by hand, and by the controller when the job has succeeded."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.e2e.cluster.furniture import a_claim
from tests.e2e.cluster.governed import controller
from tests.e2e.cluster.registry_support import a_model_registry
from tests.e2e.cluster.support import Place, a_job, eventually, own_place

from mpijob import Client, Phase
from mpijob.backends.kubernetes.backend import KubernetesBackend
from mpijob.backends.kubernetes.client import resources
from mpijob.backends.model_registry import Registry, RegistryEntry
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.model import Model, Volume, VolumeKind

pytestmark = [pytest.mark.testbed, pytest.mark.long]
BERT = Model(name="bert", path="/models/bert", format="onnx")


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with a_model_registry(tmp_path_factory.mktemp("registry")) as address:
        yield address


@pytest.fixture(scope="module")
def place(kubeconfig: Path) -> Iterator[Place]:
    with own_place(kubeconfig, "models") as made, a_claim(made, "models"):
        yield made


def kept(registry: str, what: str) -> list[dict[str, str]]:
    with urllib.request.urlopen(f"{registry}/api/model_registry/v1alpha3/{what}", timeout=10) as answer:
        found: list[dict[str, str]] = json.load(answer)["items"]
    return found


@pytest.mark.req("Q16")
def test_registering_twice_or_by_two_makes_one(registry: str) -> None:
    entry = RegistryEntry("one", "v1", "pvc://claim/one", "onnx", "alice", {"mpijob.job": "train"})
    first = Registry(registry).register(entry)
    assert Registry(registry).register(entry) == first
    second = Registry(registry).register(msgspec.structs.replace(entry, version="v2"))
    assert (second.model_id, second.version_id == first.version_id) == (first.model_id, False)
    versions = kept(registry, f"registered_models/{first.model_id}/versions")
    assert [(one["name"], one["author"]) for one in versions] == [("v1", "alice"), ("v2", "alice")]
    (artifact,) = kept(registry, f"model_versions/{first.version_id}/artifacts")
    assert (artifact["uri"], artifact["modelFormatName"]) == ("pvc://claim/one", "onnx")


@pytest.mark.req("Q16", "UC3-AF3")
def test_the_controller_writes_a_model_down_by_itself_and_again_later_where_the_registry_was_away(
    place: Place, registry: str
) -> None:
    job = a_job(
        "train",
        'test "$MPIJOB_RANK" = 1 || { mkdir -p /models/bert && echo weights >/models/bert/weights; }',
        volumes=(Volume(mount="/models", kind=VolumeKind.CLAIM, source="models"),),
        model=BERT,
    )
    with controller(place, MPIJOB_MODEL_REGISTRY="http://127.0.0.1:9"):
        handle = place.client.submit(job)
        assert handle.wait(240).phase is Phase.SUCCEEDED
        eventually(lambda: "MODEL_NOT_REGISTERED" in reasons(place), "it is told that nobody answers", 60)
        assert handle.state().phase is Phase.SUCCEEDED
    assert noted(place) == ""
    with controller(place, MPIJOB_MODEL_REGISTRY=registry):
        eventually(lambda: noted(place), "the model is written down", 60)
    assert "ModelRegistered" in reasons(place)
    (model,) = (one for one in kept(registry, "registered_models") if one["name"] == "bert")
    (version,) = kept(registry, f"registered_models/{model['id']}/versions")
    assert noted(place) == f"bert/{version['name']}"
    (artifact,) = kept(registry, f"model_versions/{version['id']}/artifacts")
    assert artifact["uri"] == "pvc://models/bert"

    settings = msgspec.structs.replace(place.settings, model_registry=registry)
    by_hand = Client(KubernetesBackend(settings), settings=settings).register("train")
    assert (by_hand.version_id, by_hand.uri) == (version["id"], artifact["uri"])


def reasons(place: Place) -> set[str]:
    found = place.api.list(resources.EVENT.path(place.namespace)).items
    return {one["reason"] for one in found if one["involvedObject"]["name"] == "train"}


def noted(place: Place) -> str:
    job = place.find(resources.TRAINJOB, "train") or {}
    notes: dict[str, str] = job["metadata"].get("annotations") or {}
    return notes.get(well_known.MODEL_ANNOTATION, "")
