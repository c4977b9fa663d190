"""What a client knows of a cluster from a moment ago: what is read again for the next job, and what is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.preflight_support import JANE, NAMESPACE, SERVED, FakeApi, a_job, with_gpus

from mpijob.backends.kubernetes.backend import KubernetesBackend
from mpijob.backends.kubernetes.client.api_errors import ApiError
from mpijob.backends.kubernetes.client.concurrent import ReadResult
from mpijob.backends.kubernetes.preflight import cache, preflight
from mpijob.backends.kubernetes.preflight.cache import PreflightCache
from mpijob.client.submit import pipeline
from mpijob.errors import NotAllowed
from mpijob.model import Network
from mpijob.settings import Settings

READ_ONLY = [{"verbs": ["get", "list"], "apiGroups": ["*"], "resources": ["*"]}]
EVERYTHING = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]


def backend_of(api: FakeApi, place: Path) -> KubernetesBackend:
    """Return the engine in front of a cluster in memory."""
    config = {
        "clusters": [{"name": "lab", "cluster": {"server": "https://192.0.2.1:6443"}}],
        "users": [{"name": "me", "user": {"token": "t"}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "me", "namespace": NAMESPACE}}],
        "current-context": "lab",
    }
    path = place / "config"
    path.write_text(json.dumps(config))
    backend = KubernetesBackend(Settings(kubeconfig=str(path), image_check="off"))
    backend._api = api
    backend._reader.__dict__["served"] = SERVED
    return backend


def test_an_answer_is_kept_for_a_moment_and_for_its_namespace() -> None:
    now = 100.0
    known = PreflightCache(lambda: now)
    known.keep("a", {"nodes": ReadResult("n"), "pods": ReadResult("p")}, since=99.0)
    assert known.recall("a", ["nodes", "pods", "rights"]) == {"nodes": ReadResult("n")}
    assert known.recall("b", ["nodes"]) == {}
    now = 99.0 + cache.KEPT_SECONDS
    assert known.recall("a", ["nodes"]) == {}


def test_a_refusal_is_not_kept_and_what_is_kept_can_be_forgotten() -> None:
    known = PreflightCache()
    known.keep("a", {"nodes": ReadResult(None, ApiError("no", status=403))}, since=known.now())
    assert known.recall("a", ["nodes"]) == {}
    known.keep("a", {"nodes": ReadResult("n")}, since=known.now())
    known.forget("a")
    assert known.recall("a", ["nodes"]) == {}


def test_the_next_job_reads_only_what_may_have_changed() -> None:
    api, known = with_gpus(), PreflightCache()
    first = preflight.gather(api, a_job(), SERVED, Settings(), cache=known)
    everything, api.asked = len(api.asked), []
    second = preflight.gather(api, a_job(name="next"), SERVED, Settings(), cache=known)
    assert (first.facts.recalled, second.facts.recalled) == (False, True)
    kinds_read = {path.rpartition(f"/{NAMESPACE}/")[2].rpartition("v1/")[2] for path in api.asked}
    assert kinds_read == {
        "resourcequotas", "pods", "trainjobs", "mpijobs", "trainjobs/next", "mpijobs/next",
    }  # fmt: skip
    assert everything > len(api.asked)
    assert (second.facts.free, second.facts.may) == (first.facts.free, first.facts.may)


def test_a_fresh_preflight_uses_nothing_that_was_cached(tmp_path: Path) -> None:
    api = with_gpus()
    backend = backend_of(api, tmp_path)
    backend.preflight(a_job(), JANE)
    api.rules = READ_ONLY
    assert "create" in backend.preflight(a_job(name="other"), JANE).facts.may
    assert "create" in backend.preflight(a_job(name="other"), JANE).facts.may
    assert "create" not in backend.preflight(a_job(name="other"), JANE, fresh=True).facts.may


def test_two_drafts_of_one_name_are_each_planned_with_what_was_seen_for_them(tmp_path: Path) -> None:
    backend = backend_of(with_gpus(), tmp_path)
    open_network = a_job(network=Network(isolated=False))
    first, second = (backend.preflight(job, JANE) for job in (a_job(), open_network))
    kinds_of = [
        [one["kind"] for one in backend.plan(job, found).documents]
        for job, found in ((a_job(), first), (open_network, second))
    ]
    assert ["NetworkPolicy" in some for some in kinds_of] == [True, False]


@pytest.mark.req("FR-023")
def test_a_job_is_refused_only_for_what_is_true_now(tmp_path: Path) -> None:
    api = with_gpus()
    api.rules = READ_ONLY
    backend = backend_of(api, tmp_path)
    with pytest.raises(NotAllowed):
        pipeline.prepare(a_job(name="early"), JANE, backend, max_workers=100)
    with pytest.raises(NotAllowed):
        pipeline.prepare(a_job(name="still"), JANE, backend, max_workers=100)
    api.rules = EVERYTHING
    assert pipeline.prepare(a_job(name="late"), JANE, backend, max_workers=100).job.name == "late"
