"""Reading a job's objects side by side: what one read missed is asked for again, and nothing is told backwards."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.unit.kube_store import Store

from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api import Api
from mpijob.backends.kubernetes.client.api_errors import ApiError
from mpijob.backends.kubernetes.client.resources import Kind
from mpijob.backends.kubernetes.status import job_objects
from mpijob.backends.kubernetes.status.job_objects import Found
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.formats.status import job_conditions

LAUNCHER = "run-launcher-0"


def batch_job(name: str, active: int, *conditions: str) -> dict[str, Any]:
    told = [
        {"type": one, "status": "True", "lastTransitionTime": "2026-11-15T12:00:00Z"} for one in conditions
    ]
    return {"metadata": {"name": name}, "status": {"active": active, "conditions": told}}


def pod(name: str, job: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"batch.kubernetes.io/job-name": job}}}


class Changing:
    """An API server whose Jobs are read twice: the second answer is newer."""

    def __init__(self, pods: list[dict[str, Any]], *jobs: list[dict[str, Any]]) -> None:
        self._pods, self._jobs, self.asked = pods, list(jobs), 0

    def list(self, path: str, labels: str = "", **more: str) -> Any:
        if path.endswith("/pods"):
            return SimpleNamespace(items=self._pods)
        return SimpleNamespace(items=self._next() if path.endswith("/jobs") else [])

    def find(self, path: str) -> Any:
        return self._next()[0] if path.endswith("/jobs/run-launcher") else None

    def _next(self) -> Any:
        self.asked += 1
        return self._jobs[min(self.asked, len(self._jobs)) - 1]


def gathered(api: Changing, kind: Kind) -> list[dict[str, Any]]:
    job = {"metadata": {"name": "run", "namespace": "team", "uid": "u"}, "spec": {}}
    seen = job_objects.objects(cast(Api, api), Found(kind, job), frozenset(), [])
    return cast(list[dict[str, Any]], list(seen.jobs))


def test_a_launcher_that_went_between_two_reads_is_seen_as_ended() -> None:
    old, new = batch_job(LAUNCHER, 1), batch_job(LAUNCHER, 0, "FailureTarget")
    api = Changing([pod("run-node-0-0-abcde", "run-node-0")], [old], [new])
    (launcher,) = gathered(api, resources.TRAINJOB)
    ending = job_conditions.ending(launcher, "SuccessCriteriaMet", "FailureTarget")
    assert ending is not None
    assert not ending.good


def test_nothing_is_asked_twice_while_every_pod_is_there() -> None:
    api = Changing([pod("run-launcher-0-0-abcde", LAUNCHER)], [batch_job(LAUNCHER, 1)])
    gathered(api, resources.TRAINJOB)
    assert api.asked == 1


def test_the_launcher_of_the_mpi_operator_is_asked_for_only_when_its_pod_is_missing() -> None:
    worker, launcher = pod("run-worker-0", ""), pod("run-launcher-x7k2p", "run-launcher")
    api = Changing([worker], [batch_job("run-launcher", 0, "Failed")])
    assert [one["metadata"]["name"] for one in gathered(api, resources.MPIJOB)] == ["run-launcher"]
    api = Changing([worker, launcher], [batch_job("run-launcher", 1)])
    assert gathered(api, resources.MPIJOB) == []
    assert api.asked == 0


def a_workload(name: str, job_uid: str, **fields: Any) -> dict[str, Any]:
    labels = {"kueue.x-k8s.io/job-uid": job_uid}
    return {"metadata": {"namespace": "team", "name": name, "labels": labels}, **fields}


@pytest.mark.req("UC3-AF1")
@pytest.mark.parametrize("everywhere", [True, False], ids=["all namespaces", "one namespace"])
def test_who_took_a_jobs_place_is_found_by_a_user_who_sees(everywhere: bool) -> None:
    told = "Preempted to accommodate a workload (UID: 1, JobUID: theirs) due to prioritization in the ClusterQueue"
    evicted = {"type": "Evicted", "status": "True", "reason": "Preempted", "message": told}
    mine, theirs = a_workload("mine", "u", status={"conditions": [evicted]}), a_workload("theirs", "theirs")
    api = Store()
    for one in (mine, theirs):
        api.objects[resources.WORKLOAD.path("team", one["metadata"]["name"])] = one

    def refuse(method: str, path: str) -> None:
        if path == resources.WORKLOAD.path() and not everywhere:
            raise ApiError("forbidden", status=403, reason="Forbidden")

    api.before = refuse
    labels = {well_known.QUEUE_LABEL: "main"}
    job = {"metadata": {"name": "run", "namespace": "team", "uid": "u", "labels": labels}, "spec": {}}
    seen = job_objects.objects(api, Found(resources.MPIJOB, job), frozenset({resources.KUEUE_API}), [])
    assert (seen.workload, seen.taker) == (mine, theirs)


class WithoutKueue(Changing):
    """An API server that cannot ask Kueue for its queues."""

    def get(self, path: str, **more: str) -> Any:
        raise ApiError("the server is currently unable to handle the request", status=503, path=path)


def test_a_queued_job_is_looked_at_although_kueue_tells_no_place() -> None:
    job = {
        "metadata": {
            "name": "run",
            "namespace": "team",
            "uid": "u",
            "labels": {well_known.QUEUE_LABEL: "main"},
        },
        "spec": {"suspend": True},
    }
    served = frozenset({resources.KUEUE_API})
    seen = job_objects.objects(cast(Api, WithoutKueue([], [])), Found(resources.TRAINJOB, job), served, [])
    assert (seen.job, seen.position) == (job, None)
