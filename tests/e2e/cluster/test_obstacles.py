"""Whatever keeps a job from starting on a real cluster is told within seconds: before it is sent, or while it waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.cluster.furniture import a_claim, a_queue, remove_claim
from tests.e2e.cluster.governed import controller
from tests.e2e.cluster.support import (
    PATIENCE,
    Place,
    a_job,
    blamed,
    eventually,
    image,
    own_place,
    said,
    shows,
)

from mpijob import Job, MPIJob, Phase
from mpijob.backends.kubernetes.client import resources
from mpijob.errors import NotFound, QuotaExceeded, Severity
from mpijob.model import Identity, Network, Resources, Secret, Signal, Volume, VolumeKind

LONG = "echo begun; sleep 300"
OPEN = Network(isolated=False)  # brings no policy of its own, which would open what others close
CLAIM_VOLUME = Volume(mount="/data", kind=VolumeKind.CLAIM, source="absent")


@pytest.fixture(scope="module")
def place(kubeconfig: Path) -> Iterator[Place]:
    with own_place(kubeconfig, "obstacles") as place:
        yield place


def check_waits(job: Job, code: str, reason: str, *words: str) -> None:
    """Expect a job that is told as waiting for something in particular."""
    state = shows(job, lambda now: now.reason == reason, f"tells {reason}")
    assert (state.phase, state.findings[0].code) == (Phase.PENDING, code)
    assert state.findings[0].severity is Severity.WARNING
    told = f"{state.message} {state.waiting_for}"
    assert all(one in told for one in words), told
    job.delete(0)


def submit_unseen(place: Place, job: MPIJob, between: Callable[[], object] = lambda: None) -> Job:
    """Submit a job whose plan was made before something happened, as when two users submit at once."""
    backend = place.client.backend
    told, who = place.client.localized(job), Identity("admin")
    plan = backend.plan(told, backend.preflight(told, who))
    between()
    return place.client.get(backend.submit(plan, who))


@pytest.mark.req("C-top10", "A-edge-image")
def test_an_image_that_does_not_exist_is_told_and_in_the_end_the_job_is_given_up(place: Place) -> None:
    job = place.client.submit(a_job("no-image", image=image("nowhere"), gang_timeout_seconds=10))
    state = shows(job, lambda now: now.reason == "ImageNotFound", "tells that the image is missing")
    assert (state.phase, state.findings[0].code) == (Phase.PENDING, "IMAGE_NOT_FOUND")
    assert image("nowhere") in state.waiting_for
    with place.client.reconciling(job.ref):
        state = job.wait(PATIENCE)
    assert blamed(state) == (Phase.FAILED, "IMAGE_NOT_FOUND", None)
    assert state.findings[0].severity is Severity.ERROR
    eventually(lambda: not place.pods(job), "no worker is left")


@pytest.mark.req("FR-RES-005", "B-edge-pending", "B-story1-wait")
def test_a_pod_that_fits_nowhere_says_what_is_missing(place: Place) -> None:
    job = a_job("no-room", LONG, resources=Resources(cpu="10m", memory="64Mi", gpu=5), workers=1)
    first = place.client.submit(job.replace(name="has-room"))
    eventually(lambda: first.state().started, "the first job has its place")
    second = place.client.submit(job)
    numbers = "Insufficient GPUs: requested 5, available 3"
    waits = "Waiting for resources. 3/5 GPUs available."
    check_waits(second, "UNSCHEDULABLE", "Unschedulable", numbers, "worker 0", waits)
    first.delete(0)


@pytest.mark.parametrize(
    ("name", "fields", "words"),
    [
        (
            "secret",
            {"secrets": (Secret(env="TOKEN", source="absent/key"),)},
            "The secret absent does not exist",
        ),
        (
            "config-map",
            {"volumes": (Volume(mount="/data", kind=VolumeKind.CONFIG, source="absent"),)},
            "The config map absent does not exist",
        ),
        (
            "secret-volume",
            {"volumes": (Volume(mount="/data", kind=VolumeKind.SECRET, source="absent"),)},
            "The secret absent does not exist",
        ),
    ],
)
def test_what_a_job_names_and_the_namespace_lacks_is_told(
    place: Place, name: str, fields: dict[str, Any], words: str
) -> None:
    job = place.client.submit(a_job(f"no-{name}", **fields))
    check_waits(job, "SETTINGS_MISSING", "SettingsMissing", words)


def test_a_claim_that_does_not_exist_is_told_before_anything_is_made(place: Place) -> None:
    with pytest.raises(NotFound, match="volume claim 'absent' does not exist"):
        place.client.submit(a_job("no-claim", volumes=(CLAIM_VOLUME,)))
    assert place.find(resources.TRAINJOB, "no-claim") is None


def test_a_claim_that_goes_while_a_job_is_sent_is_told_by_the_job(place: Place) -> None:
    with a_claim(place, "absent") as claim:
        lost = a_job("lost-claim", volumes=(CLAIM_VOLUME,))
        job = submit_unseen(place, lost, lambda: remove_claim(place, claim))
        check_waits(job, "VOLUME_NOT_READY", "VolumeNotReady", "absent")


@pytest.mark.req("FR-027", "SC-006", "D-quota", "FR-INT-002")
def test_a_resource_quota_is_told_before_and_after_anything_is_made(kubeconfig: Path) -> None:
    with own_place(kubeconfig, "quota") as place:

        def limit() -> None:
            place.put(resources.RESOURCE_QUOTA, "small", spec={"hard": {"limits.memory": "200Mi"}})

        late = submit_unseen(place, a_job("late"), limit)
        eventually(
            lambda: "used" in (place.find(resources.RESOURCE_QUOTA, "small") or {})["status"], "it counts"
        )
        begun = time.monotonic()
        with pytest.raises(QuotaExceeded, match="200 MiB"):
            place.client.submit(a_job("early"))
        assert time.monotonic() - begun < 2.0
        assert place.find(resources.TRAINJOB, "early") is None
        check_waits(late, "QUOTA_USED_UP", "QuotaUsedUp", "exceeded quota: small")


@pytest.mark.req("A-edge-net", "C-top10", "D-preflight-net")
def test_a_network_policy_that_blocks_the_job_is_told_before_and_after(kubeconfig: Path) -> None:
    with own_place(kubeconfig, "closed") as place:
        closed = {"podSelector": {}, "policyTypes": ["Ingress"]}
        place.put(resources.NETWORK_POLICY, "deny-all", spec=closed)
        warned = {one.code for one in place.client.plan(a_job("closed", network=OPEN)).notices}
        assert "NETWORK_BLOCKED" in warned
        job = place.ended(a_job("closed", network=OPEN))
        assert blamed(job.last)[:2] == (Phase.FAILED, "NETWORK_BLOCKED")
        assert "check NetworkPolicies" in job.last.message


# -- queues --------------------------------------------------------------------------------------------
@pytest.mark.req("FR-028", "FR-RES-005", "R7")
def test_a_job_waits_for_a_full_queue_and_runs_when_there_is_room(kubeconfig: Path) -> None:
    with own_place(kubeconfig, "queued") as place, a_queue(place, "600m") as queue:
        first = place.running(a_job("first", LONG, queue=queue))
        second = place.client.submit(a_job("second", queue=queue))
        state = shows(second, lambda now: "CPU" in now.waiting_for, "waits for CPU cores")
        assert (state.phase, state.queue_position) == (Phase.QUEUED, 1)
        assert place.pods(second) == []
        first.cancel(0)
        assert second.wait(PATIENCE).phase is Phase.SUCCEEDED


TRAINS = """
kept=/data/$MPIJOB_RANK
if [ -e $kept ]; then echo "resumed at $(cat $kept)"; exit 0; fi
trap 'echo "epoch 45" >$kept' USR1
echo "epoch 45/100 loss=0.5"
echo begun
while :; do sleep 0.1; done
"""


@pytest.mark.testbed
@pytest.mark.req("UC3-AF1", "FR-028", "Q8")
def test_a_preempted_job_writes_its_checkpoint_names_its_epoch_and_resumes_from_it(kubeconfig: Path) -> None:
    """Every rank gets the signal and time to write; the controller keeps what the lines told before the pods go."""
    with (
        own_place(kubeconfig, "preempted") as place,
        a_queue(place, "600m") as queue,
        a_claim(place, "checkpoints") as claim,
        controller(place),
    ):
        volumes = (Volume(mount="/data", kind=VolumeKind.CLAIM, source=claim),)
        saves = Signal(name="USR1", seconds_before=4.0)
        training = a_job(
            "low", TRAINS, queue=queue, priority="low", volumes=volumes, signal=saves, grace_seconds=5.0
        )
        low = place.busy(training)
        high = place.client.submit(a_job("high", "sleep 8", queue=queue, priority="high"))
        state = shows(low, lambda now: now.reason == "Preempted", "tells it")
        assert (state.phase, state.findings[0].code) == (Phase.QUEUED, "PREEMPTED")
        state = shows(
            low, lambda now: "epoch" in now.waiting_for and not place.pods(low), "keeps its epoch", 30
        )
        assert state.waiting_for.startswith("Pre-empted at epoch 45/100 (")
        assert "; will resume when" in state.waiting_for
        assert high.wait(PATIENCE).phase is Phase.SUCCEEDED
        assert low.wait(PATIENCE).phase is Phase.SUCCEEDED
        assert said(low) == {rank: ["resumed at epoch 45"] for rank in (0, 1)}
        low.delete(0)
