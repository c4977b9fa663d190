"""Lists of cluster jobs: only the jobs of a page are looked at whole, and only what belongs to them is read."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.cluster_objects import Cluster
from tests.unit.cluster_support import a_job
from tests.unit.kube_store import Store

from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api import ApiError, Listing
from mpijob.backends.kubernetes.status import derive_state, list_jobs
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.model import Phase, Scope

NAMESPACE = a_job().namespace


class Noting(Store):
    """Notes with which labels collections were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.selectors: dict[str, str] = {}

    def list(self, path: str, *, labels: str = "", fields: str = "", **more: Any) -> Listing:
        self.selectors[path.rpartition("/")[2]] = labels
        return super().list(path, labels=labels, fields=fields, **more)


def crowd(count: int, **labels: str) -> Noting:
    api = Noting()
    for number in range(count):
        job = Cluster(a_job(name=f"job-{number}")).job
        job["metadata"] |= {"uid": f"uid-{number}", "creationTimestamp": f"2026-11-15T00:00:{number:02}Z"}
        job["metadata"]["labels"] |= {well_known.UID_LABEL: f"u-{number}", **labels}
        api.objects[resources.TRAINJOB.path(NAMESPACE, f"job-{number}")] = job
    return api


def names(page: Any) -> list[str]:
    return [state.ref.name for state in page.items]


def test_only_the_pods_of_the_pages_jobs_are_read() -> None:
    api = crowd(5)
    page = list_jobs.page(api, Scope(namespace=NAMESPACE, limit=2))
    assert (names(page), page.total, page.after) == (["job-4", "job-3"], 5, "2")
    assert api.selectors["pods"] == f"{well_known.JOB_LABEL} in (job-3,job-4)"
    assert "workloads" not in api.selectors


def test_only_the_jobs_of_a_page_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looked, summary = list[str](), derive_state.summary

    def counted(job: Any, *more: Any) -> Any:
        looked.append(job["metadata"]["name"])
        return summary(job, *more)

    monkeypatch.setattr(derive_state, "summary", counted)
    list_jobs.page(crowd(9), Scope(namespace=NAMESPACE, limit=3, after="3"))
    assert looked == ["job-5", "job-4", "job-3"]


def test_a_name_chooses_before_anything_is_looked_at() -> None:
    page = list_jobs.page(crowd(12), Scope(namespace=NAMESPACE, text="b-1"))
    assert (names(page), page.total) == (["job-11", "job-10", "job-1"], 3)


def test_what_a_name_does_not_tell_is_looked_for_in_every_job() -> None:
    api = crowd(4)
    api.objects[resources.TRAINJOB.path(NAMESPACE, "job-1")]["status"] = {
        "conditions": [
            {"type": "Complete", "status": "True", "lastTransitionTime": "2026-11-15T00:09:00Z"},
        ]
    }
    page = list_jobs.page(api, Scope(namespace=NAMESPACE, phases=(Phase.SUCCEEDED.value,), limit=1))
    assert (names(page), page.total, page.after) == (["job-1"], 1, "")


def test_workloads_are_read_for_jobs_that_have_a_queue() -> None:
    api = crowd(2, **{well_known.QUEUE_LABEL: "main"})
    list_jobs.page(api, Scope(namespace=NAMESPACE, limit=1))
    assert api.selectors["workloads"] == "kueue.x-k8s.io/job-uid in (uid-1)"


def test_of_too_many_jobs_everybodys_pods_are_read() -> None:
    api = crowd(8)
    many = [f"job-{number}" for number in range(101)]
    assert list_jobs._selector("a", many) == "a"
    list_jobs.page(api, Scope(namespace=NAMESPACE, limit=1000))
    assert api.selectors["pods"].startswith(f"{well_known.JOB_LABEL} in (")


def refusing(*plurals: str) -> Noting:
    """Return a crowd of whose objects some kinds may not be seen."""
    api = crowd(2)

    def before(method: str, path: str) -> None:
        plural = path.rpartition("/")[2]
        if plural in plurals:
            raise ApiError(refused(plural), status=403)

    api.before = before
    return api


def refused(plural: str) -> str:
    group = "" if plural == "pods" else "trainer.kubeflow.org" if plural == "trainjobs" else "kubeflow.org"
    return f'User "eve" cannot list resource "{plural}" in API group "{group}" in the namespace "cv"'


def test_what_a_list_may_lack_is_named() -> None:
    page = list_jobs.page(refusing("mpijobs", "pods"), Scope(namespace=NAMESPACE))
    assert len(page.items) == 2
    told = [notice.message for notice in page.notices]
    assert [words.rpartition("permission for ")[2] for words in told] == [
        "MPIJobs in namespace 'cv'",
        "Pods in namespace 'cv'",
    ]


def test_a_list_of_which_nothing_may_be_seen_is_not_empty_but_refused() -> None:
    with pytest.raises(ApiError, match="trainjobs"):
        list_jobs.page(refusing("trainjobs", "mpijobs"), Scope(namespace=NAMESPACE))
