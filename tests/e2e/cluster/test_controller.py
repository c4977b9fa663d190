"""The controller on a real cluster: what jobs need although nobody waits for them, whatever becomes of it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from testbed import places, processes
from tests.e2e.cluster.faults import left_of
from tests.e2e.cluster.governed import controller, install_resources, limits, noted_phase, told, transitions
from tests.e2e.cluster.support import PATIENCE, TINY, Place, a_job, eventually, own_place
from tests.e2e.cluster.tollgate import opened

from mpijob import Phase
from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api import ApiError, Document
from mpijob.backends.kubernetes.client.watch import watch
from mpijob.backends.kubernetes.controller import garbage_collector
from mpijob.backends.kubernetes.metrics import pod_usage
from mpijob.errors import NotFound
from mpijob.formats.kubernetes.metadata import user_actions
from mpijob.formats.kubernetes.metadata.controller_notes import FINDINGS_ANNOTATION, is_own
from mpijob.model import Retry
from mpijob.model.platform.governance import Idle, IdleAction, Retention


@pytest.fixture(scope="module")
def place(kubeconfig: Path) -> Iterator[Place]:
    with own_place(kubeconfig, "controller") as place:
        install_resources(place)
        yield place


def gone(place: Place, name: str) -> bool:
    try:
        place.client.state(name)
    except NotFound:
        return True
    return False


@pytest.mark.req("C-ha")
def test_a_job_without_a_client_is_tried_again_and_tells_what_it_went_through(place: Place) -> None:
    with controller(place):
        place.client.submit(a_job("alone", "exit 7", retry=Retry(limit=1, backoff_seconds=1)))
        eventually(lambda: noted_phase(place, "alone-a2") == "Failed", "the last attempt's end", PATIENCE)
    state = place.client.state("alone")
    assert (state.phase, state.attempt) == (Phase.FAILED, 2)
    job = place.find(resources.TRAINJOB, "alone-a2")
    assert job is not None
    assert "exited with code 7" in job["metadata"]["annotations"][FINDINGS_ANNOTATION]
    failed = next(one for one in told(place, "alone-a2") if one["reason"] == "Failed")
    assert failed["type"] == "Warning"
    assert "from submit to end" in failed["message"]
    assert "Running" in transitions(place, "alone-a2")
    place.client.delete("alone")
    eventually(lambda: not left_of(place, "alone"), "nothing is left", PATIENCE)


@pytest.mark.req("Q-SEC-004", "FR-RES-004")
def test_limits_of_a_namespace_end_a_job_and_clear_it_away(place: Place) -> None:
    keep = Retention(finished_jobs_seconds=4)
    with limits(place, max_duration_seconds=3, retention=keep), controller(place):
        job = place.client.submit(a_job("endless", "sleep 600"))
        eventually(lambda: "Failed" in transitions(place, "endless"), "it is ended", PATIENCE)
        failed = next(one for one in told(place, "endless") if one["reason"] == "Failed")
        assert f"namespace {place.namespace} allows 3 s" in failed["message"]
        eventually(partial(gone, place, "endless"), "it is cleared away", PATIENCE)
        eventually(lambda: not left_of(place, job.name), "nothing is left", PATIENCE)


@pytest.mark.req("FR-RES-004")
def test_a_job_with_a_ttl_is_cleared_away_by_the_controller_and_others_stay(place: Place) -> None:
    with controller(place):
        brief = place.client.submit(a_job("brief", "true", ttl_seconds=4))
        stays = place.client.submit(a_job("stays", "true"))
        eventually(partial(gone, place, "brief"), "its time is over", PATIENCE)
        eventually(lambda: not left_of(place, brief.name), "nothing is left", PATIENCE)
        assert stays.wait(PATIENCE).phase is Phase.SUCCEEDED
        stays.delete()


@pytest.mark.req("FR-RES-004")
def test_what_a_killed_submit_left_is_swept(place: Place) -> None:
    job = place.client.submit(a_job("swept", "sleep 30"))
    runtime = place.find(resources.TRAINING_RUNTIME, "swept")
    assert runtime is not None
    metadata = {
        key: runtime["metadata"][key] for key in ("labels", "annotations") if key in runtime["metadata"]
    }
    metadata["labels"] |= {"mpijob.dev/uid": "of-nobody"}
    place.put(resources.TRAINING_RUNTIME, "stray", metadata=metadata, spec=runtime["spec"])
    served = frozenset({resources.TRAINER_API})
    eventually(
        lambda: garbage_collector.sweep(place.api, place.namespace, served, stray_seconds=1),
        "the stray is swept",
    )
    assert place.find(resources.TRAINING_RUNTIME, "stray") is None
    assert place.find(resources.TRAINING_RUNTIME, "swept") is not None
    job.delete(grace_period=0)


@pytest.mark.testbed
@pytest.mark.alone
@pytest.mark.long
def test_a_lost_node_is_told_on_its_jobs_before_the_cluster_knows(place: Place) -> None:
    """The kubelet is stopped; within 25 s every state and an Event name the node."""
    with controller(place):
        place.running(a_job("stranded", "sleep 600"))
        eventually(lambda: noted_phase(place, "stranded") == "Running", "it is told that it runs", PATIENCE)
        time.sleep(22)  # the controller tells nothing before it has heard the API server for as long
        kubelet = processes.process_id("kubelet")
        os.kill(kubelet, signal.SIGSTOP)
        stopped = time.monotonic()
        try:
            eventually(
                lambda: any(one["reason"] == "NodeLost" for one in told(place, "stranded")), "it is told", 40
            )
            took = time.monotonic() - stopped
            state = place.client.state("stranded")
        finally:
            os.kill(kubelet, signal.SIGCONT)
            place.kubectl("wait", "--for=condition=Ready", f"node/{places.NODE}", "--timeout=90s")
        sys.stderr.write(f"\n  told {took:.1f} s after the kubelet fell silent")
        assert took <= 25, took
        assert "node-1 does not answer" in state.message
        eventually(lambda: "does not answer" not in place.client.state("stranded").message, "it is back", 40)
    place.client.delete("stranded", grace_period=0)


def first_heard(place: Place, path: str, sign: Callable[[Document], object], times: dict[str, float]) -> None:
    """Note when a watch first tells of an object with a sign; in a thread, until the place goes."""

    def listen() -> None:
        with suppress(ApiError):
            for change in watch(place.api, path):
                if change.kind not in ("RESET", "BOOKMARK") and sign(change.object):
                    times[path] = time.monotonic()
                    return

    threading.Thread(target=listen, daemon=True).start()


def is_dead(pod: Document) -> bool:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return any("terminated" in one["state"] for one in statuses)


def test_a_dead_worker_is_told_when_the_kubelet_has_told_it(place: Place) -> None:
    """Both are heard by the same kind of watch; the figure is printed (`pytest -s`), a second is wanted."""
    with controller(place):
        job = place.running(a_job("bereft", "sleep 600"))
        eventually(lambda: noted_phase(place, "bereft") == "Running", "it is told that it runs", PATIENCE)
        times: dict[str, float] = {}
        pods, events = resources.POD.path(place.namespace), resources.EVENT.path(place.namespace)
        first_heard(place, pods, is_dead, times)
        first_heard(place, events, lambda one: one["reason"] == "Failed" and is_own(one), times)
        pod = place.worker(job, 1)["metadata"]["name"]
        place.kubectl("exec", pod, "--", "sh", "-c", "(sleep 1; kill -TERM 1) >/dev/null 2>&1 &")
        eventually(lambda: len(times) == 2, "both have told it", PATIENCE)
    late = times[events] - times[pods]
    sys.stderr.write(f"\n  told {late:.2f} s after the kubelet's status")
    assert late <= 4.0  # the machine may be busy
    place.client.delete("bereft", grace_period=0)


@pytest.mark.req("PMV-013")
def test_idle_gpus_are_given_back_and_the_job_is_queued_again_where_its_namespace_says_so(
    place: Place,
) -> None:
    rule = Idle(after_seconds=6, action=IdleAction.REQUEUE)
    with limits(place, idle=rule), opened() as (gate, kubeconfig):
        gate.answers = partial(_measured, place)
        with controller(place, KUBECONFIG=kubeconfig, MPIJOB_WARN_AFTER_SECONDS="2"):
            place.client.submit(a_job("lazy", "sleep 600", resources=TINY.replace(gpu=1)))
            eventually(lambda: len(_acts(place)) >= 2, "it is suspended and resumed", PATIENCE)
            eventually(lambda: "Suspended" in transitions(place, "lazy"), "it is told", PATIENCE)
    rule_of = "by the idle GPU rule of this namespace"
    assert _acts(place)[:2] == [f"suspended {rule_of}", f"queued again {rule_of}"]
    assert place.client.state("lazy").attempt >= 2
    assert "GPUS_IDLE" in [one["reason"] for one in told(place, "lazy")]
    place.client.delete("lazy", 0)


def _acts(place: Place) -> list[str]:
    job = place.find(resources.TRAINJOB, "lazy")
    return [] if job is None else [act.message for act in user_actions.read(job)]


def _measured(place: Place, path: str) -> Document | None:
    """Answer as the metrics API that the test bed has not, for pods that do nothing."""
    if path == "/apis":
        known = place.api.get(path)
        return known | {"groups": [*known["groups"], {"versions": [{"groupVersion": pod_usage.METRICS_API}]}]}
    if not path.startswith(f"/apis/{pod_usage.METRICS_API}/"):
        return None
    if path.endswith("/pods"):
        return {"metadata": {"resourceVersion": "1"}, "items": []}
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"timestamp": now, "containers": [{"usage": {"cpu": "1m", "memory": "1Mi"}}]}
