"""A job's model in the model registry: by itself on success, by hand afterwards, and nothing lost when it is away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from mpijob import Client, Phase
from mpijob.backends import model_registry
from mpijob.backends.local import LocalBackend
from mpijob.errors import BackendError, Conflict, InvalidJob, NotAllowed
from mpijob.model import Model, Volume, VolumeKind
from mpijob.outbound.http import Response
from mpijob.settings import Settings

from .models_support import Registry, a_registry
from .support import PATIENCE, a_job, ended, running, succeeded

pytestmark = pytest.mark.engine
WRITES = 'test "$MPIJOB_RANK" = 1 || { mkdir -p model; echo weights >model/weights; }'
BERT = Model(name="bert", path="model", format="onnx")


@pytest.fixture
def registry() -> Iterator[Registry]:
    with a_registry() as registry:
        yield registry


@pytest.fixture
def knowing(settings: Settings, registry: Registry, tmp_path: Path) -> Iterator[Client]:
    (tmp_path / "token").write_text("t0ken\n")
    registry.token = "t0ken"
    there = msgspec.structs.replace(
        settings, model_registry=registry.address, model_registry_token_file=str(tmp_path / "token")
    )
    with Client(LocalBackend(there), settings=there) as client:
        yield client
        for state in [*client.jobs(all_namespaces=True)]:
            client.delete(state.ref, grace_period=0)


@pytest.mark.req("Q16")
def test_a_model_is_registered_when_its_job_has_succeeded(knowing: Client, registry: Registry) -> None:
    job = succeeded(knowing, a_job("train", WRITES, model=BERT))
    (model,), (version,), (artifact,) = registry.kept.values()
    assert (model["name"], version["registeredModelId"]) == ("bert", model["id"])
    assert version["name"] == f"train-{job.ref.uid[:8]}"
    assert version["customProperties"]["mpijob.job"]["string_value"] == "train"
    assert artifact["modelFormatName"] == "onnx"
    place = Path(artifact["uri"].removeprefix("file://"))
    assert (place / "weights").read_text() == "weights\n"
    assert "ModelRegistered" in [event.reason for event in job.events()]


@pytest.mark.req("Q16")
def test_a_job_that_failed_registers_nothing(knowing: Client, registry: Registry) -> None:
    assert ended(knowing, a_job("train", "exit 1", model=BERT)).phase is Phase.FAILED
    assert registry.asked == []
    with pytest.raises(Conflict, match="is Failed, and only a succeeded job has a model"):
        knowing.register("train")


@pytest.mark.req("UC3-AF3", "Q16")
def test_a_registry_that_is_away_leaves_the_job_succeeded_and_is_asked_again(
    settings: Settings, client: Client
) -> None:
    away = msgspec.structs.replace(settings, model_registry="http://127.0.0.1:9")
    with Client(LocalBackend(away), settings=away) as first:
        state = ended(first, a_job("train", WRITES, model=BERT))
    assert state.phase is Phase.SUCCEEDED
    assert state.message.startswith("Training completed, but model upload failed. Manual upload required.")
    assert (state.findings[0].code, state.findings[0].severity.value) == ("MODEL_NOT_REGISTERED", "warning")
    with a_registry() as registry:
        back = msgspec.structs.replace(settings, model_registry=registry.address)
        with Client(LocalBackend(back), settings=back) as second:
            made = second.register("train")
            again = second.register("train")
        assert made == again
        assert [len(kept) for kept in registry.kept.values()] == [1, 1, 1]


def test_a_model_can_be_named_afterwards_and_a_running_job_has_none(
    knowing: Client, registry: Registry
) -> None:
    job = running(knowing, a_job("long", "sleep 300"))
    with pytest.raises(Conflict, match="is Running"):
        knowing.register("long")
    job.cancel(grace_period=0)
    done = succeeded(knowing, a_job("plain", WRITES))
    with pytest.raises(InvalidJob, match="has no model field"):
        knowing.register(done.ref)
    made = knowing.register(done.ref, Model(name="later", version="v7", path="model"))
    assert (made.model, made.version) == ("later", "v7")
    assert done.wait(PATIENCE).phase is Phase.SUCCEEDED


@pytest.mark.security
def test_a_wrong_token_is_told_and_no_token_is_said(knowing: Client, registry: Registry) -> None:
    registry.token = "another"
    state = ended(knowing, a_job("train", WRITES, model=BERT))
    assert "access denied (401)" in state.message
    assert "t0ken" not in str(msgspec.to_builtins(state))
    with pytest.raises(NotAllowed):
        knowing.register("train")


@pytest.mark.req("Q16")
def test_where_a_model_is_is_told_as_servers_of_models_read_it() -> None:
    s3 = Volume(mount="/out", kind=VolumeKind.S3, source="lake/results/7")
    claim = Volume(mount="/claim", kind=VolumeKind.CLAIM, source="models")
    known = {"lake/results/7": ("https://s3.example.org", "bucket", "eu-1", "team")}

    def where(path: str) -> str:
        job = a_job(volumes=(s3, claim), model=Model(name="bert", path=path))
        return model_registry.model_uri(job, known, {})

    assert where("/out/model") == (
        "s3://bucket/team/results/7/model?endpoint=https%3A%2F%2Fs3.example.org&defaultRegion=eu-1"
    )
    assert where("/claim/a b") == "pvc://models/a%20b"
    with pytest.raises(InvalidJob, match="is not on a volume of the job"):
        where("model")


@pytest.mark.parametrize("answer", [b"<html>", b"{"])
def test_something_that_is_no_registry_is_told_so(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mpijob.backends.model_registry.http.request", lambda *_, **__: Response(200, answer))
    with pytest.raises(BackendError, match="is not a model registry"):
        model_registry.Registry("http://localhost:1").register(
            model_registry.RegistryEntry("m", "v", "file:///")
        )
