"""The controller registers models, once; the real registry: tests/e2e/cluster/test_models."""

from __future__ import annotations

import msgspec
import pytest
from tests.integration.models_support import a_registry
from tests.unit.backends.kubernetes.test_controller import Leading, Versioned, finish, laid_out, ref_of
from tests.unit.cluster_objects import at_work
from tests.unit.kube_node import TEAM

from mpijob.backends.kubernetes.client.api import Document
from mpijob.backends.kubernetes.controller import model_registration
from mpijob.backends.kubernetes.controller.controller import Controller
from mpijob.backends.kubernetes.status.job_reader import JobReader
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.model import Model, Volume, VolumeKind
from mpijob.settings import Settings

BERT = Model(name="bert", path="/models/bert")


def crowned(
    node: Versioned, settings: Settings, model: Model | None, monkeypatch: pytest.MonkeyPatch
) -> Document:
    """Let a job with a model succeed under a controller that looks twice; return its object."""
    cluster = at_work()
    path = laid_out(node, cluster)
    finish(node, cluster, path, 0)
    claim = Volume(mount="/models", kind=VolumeKind.CLAIM, source="models")
    spec = cluster.spec.replace(model=model, volumes=(claim,))
    monkeypatch.setattr(JobReader, "spec", lambda self, found, runtime: spec)
    controller = Controller(node, Leading(), TEAM, settings)
    for _ in range(2):
        controller._reconcile(ref_of(cluster))
    return node.objects[path]


def events(node: Versioned) -> list[str]:
    return [reason for reason, _ in node.told() if "odel" in reason.lower()]


@pytest.mark.req("Q16")
def test_a_model_is_written_down_once_and_the_job_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Versioned()
    with a_registry() as registry:
        job = crowned(node, Settings(model_registry=registry.address), BERT, monkeypatch)
        (artifact,) = registry.kept["model_artifact"]
        asked = len(registry.asked)
    assert artifact["uri"] == "pvc://models/bert"
    assert job["metadata"]["annotations"][well_known.MODEL_ANNOTATION].startswith("bert/")
    assert events(node) == ["ModelRegistered"]
    assert asked == 6, "the second look asks nobody"


@pytest.mark.req("Q16", "UC3-AF3")
def test_a_registry_that_is_away_is_told_once_and_asked_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    node, away = Versioned(), Settings(model_registry="http://127.0.0.1:9")
    job = crowned(node, away, BERT, monkeypatch)
    assert well_known.MODEL_ANNOTATION not in job["metadata"]["annotations"]
    assert events(node) == ["MODEL_NOT_REGISTERED"]
    with a_registry() as registry:
        monkeypatch.setattr(model_registration, "_RETRY_SECONDS", 0.0)
        here = msgspec.structs.replace(away, model_registry=registry.address)
        job = crowned(node, here, BERT, monkeypatch)
    assert job["metadata"]["annotations"][well_known.MODEL_ANNOTATION].startswith("bert/")


@pytest.mark.parametrize("model", [None, BERT])
def test_nobody_is_asked_without_a_model_or_a_registry(
    model: Model | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Versioned()
    with a_registry() as registry:
        crowned(node, Settings(model_registry="" if model else registry.address), model, monkeypatch)
        assert registry.asked == []
    assert events(node) == []
