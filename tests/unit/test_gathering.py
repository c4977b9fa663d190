"""Reading a job's objects side by side: what one read missed is asked for again, and nothing is told backwards."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.unit.kube_store import Store

from mpijob.backends.kubernetes import gathering, kinds
from mpijob.backends.kubernetes.api import Api
from mpijob.backends.kubernetes.failures import ApiError
from mpijob.backends.kubernetes.gathering import Found
from mpijob.backends.kubernetes.kinds import Kind
from mpijob.dialects import seen_kinds, terms

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
    seen = gathering.objects(cast(Api, api), Found(kind, job), frozenset(), [])
    return cast(list[dict[str, Any]], list(seen.jobs))


def test_a_launcher_that_went_between_two_reads_is_seen_as_ended() -> None:
    old, new = batch_job(LAUNCHER, 1), batch_job(LAUNCHER, 0, "FailureTarget")
    api = Changing([pod("run-node-0-0-abcde", "run-node-0")], [old], [new])
    (launcher,) = gathered(api, kinds.TRAINJOB)
    ending = seen_kinds.ending(launcher, "SuccessCriteriaMet", "FailureTarget")
    assert ending is not None
    assert not ending.good


def test_nothing_is_asked_twice_while_every_pod_is_there() -> None:
    api = Changing([pod("run-launcher-0-0-abcde", LAUNCHER)], [batch_job(LAUNCHER, 1)])
    gathered(api, kinds.TRAINJOB)
    assert api.asked == 1


def test_the_launcher_of_the_mpi_operator_is_asked_for_only_when_its_pod_is_missing() -> None:
    worker, launcher = pod("run-worker-0", ""), pod("run-launcher-x7k2p", "run-launcher")
    api = Changing([worker], [batch_job("run-launcher", 0, "Failed")])
    assert [one["metadata"]["name"] for one in gathered(api, kinds.MPIJOB)] == ["run-launcher"]
    api = Changing([worker, launcher], [batch_job("run-launcher", 1)])
    assert gathered(api, kinds.MPIJOB) == []
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
        api.objects[kinds.WORKLOAD.path("team", one["metadata"]["name"])] = one

    def refuse(method: str, path: str) -> None:
        if path == kinds.WORKLOAD.path() and not everywhere:
            raise ApiError("forbidden", status=403, reason="Forbidden")

    api.before = refuse
    labels = {terms.QUEUE_LABEL: "main"}
    job = {"metadata": {"name": "run", "namespace": "team", "uid": "u", "labels": labels}, "spec": {}}
    seen = gathering.objects(api, Found(kinds.MPIJOB, job), frozenset({kinds.KUEUE_API}), [])
    assert (seen.workload, seen.taker) == (mine, theirs)


class WithoutKueue(Changing):
    """An API server that cannot ask Kueue for its queues."""

    def get(self, path: str, **more: str) -> Any:
        raise ApiError("the server is currently unable to handle the request", status=503, path=path)


def test_a_queued_job_is_looked_at_although_kueue_tells_no_place() -> None:
    job = {
        "metadata": {"name": "run", "namespace": "team", "uid": "u", "labels": {terms.QUEUE_LABEL: "main"}},
        "spec": {"suspend": True},
    }
    served = frozenset({kinds.KUEUE_API})
    seen = gathering.objects(cast(Api, WithoutKueue([], [])), Found(kinds.TRAINJOB, job), served, [])
    assert (seen.job, seen.position) == (job, None)
