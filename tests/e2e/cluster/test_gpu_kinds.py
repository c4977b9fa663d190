"""GPUs of other makers and slices of one: asked for by their resource names, placed, counted, each rank with its own.

The node has them on paper (extended resources): scheduling and quotas are real, the devices are not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from testbed import places
from tests.e2e.cluster.support import TINY, Crowd, Place, a_job, own_place, said, shows

from mpijob import MPIJob
from mpijob.backends.kubernetes.client.api import Document

KINDS = {"amd": "amd.com/gpu", "intel": "gpu.intel.com/xe", "mig": "nvidia.com/mig-1g.5gb"}
SEES = 'echo "$CUDA_VISIBLE_DEVICES/$ROCR_VISIBLE_DEVICES/$ZE_AFFINITY_MASK"'
pytestmark = pytest.mark.testbed


@pytest.fixture(scope="module")
def place(kubeconfig: Path) -> Iterator[Place]:
    with own_place(kubeconfig, "gpu-kinds") as place:
        _give(place, "4")
        yield place
        _give(place, None)


def _give(place: Place, amount: str | None) -> None:
    """Let the node have so many of each kind, or none."""
    amounts = dict.fromkeys(KINDS.values(), amount)
    patch = json.dumps({"status": {"capacity": amounts, "allocatable": amounts}})
    place.kubectl("patch", "node", places.NODE, "--subresource=status", "--type=merge", f"--patch={patch}")


def of_kind(name: str) -> MPIJob:
    return a_job(f"on-{name}", SEES, slots=2, resources=TINY.replace(gpu=2, gpu_kind=KINDS[name]))


@pytest.mark.req("R6")
def test_jobs_get_gpus_of_every_maker_and_slices_each_rank_its_own(place: Place) -> None:
    crowd = Crowd(place, *(of_kind(name) for name in KINDS))
    for name, kind in KINDS.items():
        job = crowd.succeeded(of_kind(name))
        assert said(job) == {rank: ["/".join(3 * [str(rank % 2)])] for rank in range(4)}
        assert job.spec.resources.gpu_kind == kind


@pytest.mark.req("R6")
def test_a_job_takes_no_more_of_a_kind_than_there_is_and_says_what_it_waits_for(place: Place) -> None:
    three = TINY.replace(gpu=3, gpu_kind=KINDS["amd"])
    first = place.running(a_job("first", "sleep 300", workers=1, resources=three))
    second = place.client.submit(a_job("second", workers=1, resources=three))
    state = shows(second, lambda now: "GPUs" in now.waiting_for, "waits for GPUs")
    assert state.waiting_for == "Waiting for resources. 1/3 GPUs available."
    assert [amount for pod in place.pods(first) for amount in _limits(pod, KINDS["amd"])] == ["3"]
    for job in (first, second):
        job.delete(0)


def _limits(pod: Document, kind: str) -> list[str]:
    limits = pod["spec"]["containers"][0]["resources"]["limits"]
    return [limits[kind]] if kind in limits else []
