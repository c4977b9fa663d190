"""A cluster in memory for preflight tests: a dict of address → object, and which reads are refused.

Its twin is the real API server of `tests/e2e/cluster/test_preflight.py`, where the same questions are asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from mpijob import admission
from mpijob.backends.kubernetes.client import resources as kinds
from mpijob.backends.kubernetes.client.api import Api, Listing
from mpijob.backends.kubernetes.client.api_errors import ApiError
from mpijob.backends.kubernetes.client.resources import Kind
from mpijob.backends.kubernetes.preflight import preflight
from mpijob.backends.kubernetes.preflight.preflight import PreflightResult
from mpijob.errors import Finding, MpiJobError
from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.model import Identity, MPIJob, Resources
from mpijob.settings import Settings

NAMESPACE = "team-cv"
JANE = Identity("jane")
SERVED = frozenset(
    {kinds.TRAINER_API, kinds.JOBSET_API, kinds.MPI_OPERATOR_API, kinds.KUEUE_API, "apps/v1", "batch/v1"}
)
Documents = list[Document]  # a method below is called list, too


class FakeApi(Api):
    """Answers from a dict; `refused` holds collections that may not be read, `rules` what the user may do."""

    def __init__(self) -> None:  # never connects anywhere
        self.objects: dict[str, Document] = {}
        self.refused: set[str] = set()
        self.rules: Documents = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
        self.allowed: set[str] | None = None  # with it the rules are incomplete, and single questions asked
        self.asked: list[str] = []
        self.put(kinds.NAMESPACE, NAMESPACE)

    def __repr__(self) -> str:
        return f"FakeApi({len(self.objects)} objects)"

    def put(
        self,
        kind: Kind,
        name: str,
        *,
        namespace: str = NAMESPACE,
        labels: Mapping[str, str] | None = None,
        **parts: Any,
    ) -> None:
        """Keep an object."""
        place = namespace if kind.namespaced else ""
        metadata = {"name": name, "labels": dict(labels or {})} | ({"namespace": place} if place else {})
        self.objects[kind.path(place, name)] = {"metadata": metadata, **parts}

    def lanes(self, near: int = 1) -> int:
        return near

    def refuse(self, *kinds_: Kind) -> None:
        """Let reads of these kinds be answered with 403."""
        self.refused |= {kind.plural for kind in kinds_}

    def get(self, path: str, **query: str) -> Document:
        self._look(path)
        if path in self.objects:
            return self.objects[path]
        if path.endswith("/pods"):
            return {"metadata": {}, "items": self._below(path)}
        raise ApiError("not found", status=404, reason="NotFound", details={"name": path.rpartition("/")[2]})

    def list(self, path: str, *, labels: str = "", fields: str = "", **more: Any) -> Listing:
        self._look(path)
        items = self._below(path)
        if labels:
            key, _, value = labels.partition("=")
            items = [one for one in items if one["metadata"]["labels"].get(key) == value]
        return Listing(items, "1")

    def create(self, path: str, body: Mapping[str, Any], **more: Any) -> Document:
        self._look(path)
        if path == kinds.RULES_REVIEW.path():
            return {"status": {"resourceRules": self.rules, "incomplete": self.allowed is not None}}
        if path == kinds.ACCESS_REVIEW.path():
            asked = body["spec"]["resourceAttributes"]
            name = asked["resource"] + (f"/{asked['subresource']}" if asked["subresource"] else "")
            return {"status": {"allowed": f"{asked['verb']} {name}" in (self.allowed or ())}}
        self.objects[f"{path}/{body['metadata']['name']}"] = dict(body)
        return dict(body)

    def _look(self, path: str) -> None:
        self.asked.append(path)
        words = path.split("/")
        if words[-1] in self.refused or words[-2] in self.refused:
            raise ApiError(f"{path} is forbidden", status=403, reason="Forbidden")

    def _below(self, path: str) -> Documents:
        """Return a collection's objects, those of all namespaces where the address names none."""
        root, _, plural = path.rpartition("/")
        everywhere = "/namespaces/" not in path
        return [
            one
            for place, one in self.objects.items()
            if place.rpartition("/")[0] == path
            or (everywhere and place.startswith(f"{root}/namespaces/") and place.split("/")[-2] == plural)
        ]


def a_node(
    api: FakeApi,
    name: str,
    *,
    gpus: int = 0,
    cpu: str = "16",
    taints: Documents | None = None,
    labels: Mapping[str, str] | None = None,
) -> None:
    """Add a ready machine."""
    amounts = {"cpu": cpu, "memory": "64Gi", "pods": "110"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    api.put(
        kinds.NODE,
        name,
        labels={"kubernetes.io/hostname": name} | dict(labels or {}),
        spec={"taints": taints} if taints else {},
        status={"allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
    )


def a_pod(api: FakeApi, name: str, node: str, *, gpu: str = "", phase: str = "Running") -> None:
    """Add a pod that holds something of a machine."""
    requests = {"cpu": "100m"} | ({"nvidia.com/gpu": gpu} if gpu else {})
    containers = [{"resources": {"requests": requests}}]
    api.put(kinds.POD, name, spec={"nodeName": node, "containers": containers}, status={"phase": phase})


def a_quota(api: FakeApi, name: str, hard: Mapping[str, str], used: Mapping[str, str], **spec: Any) -> None:
    """Add a ResourceQuota."""
    status = {"hard": dict(hard), "used": dict(used)}
    api.put(kinds.RESOURCE_QUOTA, name, spec={"hard": dict(hard)} | spec, status=status)


def a_policy(api: FakeApi, name: str, **spec: Any) -> None:
    """Add a NetworkPolicy."""
    api.put(kinds.NETWORK_POLICY, name, spec=spec)


def a_queue(api: FakeApi, name: str, behind: str, *, active: bool = True, waiting: int = 0) -> None:
    """Add a LocalQueue."""
    condition = {"type": "Active", "status": str(active), "message": "ClusterQueue is stopped"}
    status = {"conditions": [condition], "pendingWorkloads": waiting}
    api.put(kinds.LOCAL_QUEUE, name, spec={"clusterQueue": behind}, status=status)


def a_cluster_queue(
    api: FakeApi, name: str, quotas: Mapping[str, Any], reserved: Mapping[str, str], *, cohort: str = ""
) -> None:
    """Add a ClusterQueue of one flavour."""
    resources = [
        {"name": key} | (amount if isinstance(amount, dict) else {"nominalQuota": amount})
        for key, amount in quotas.items()
    ]
    groups = [{"coveredResources": list(quotas), "flavors": [{"name": "any", "resources": resources}]}]
    used = [{"name": key, "total": amount} for key, amount in reserved.items()]
    api.put(
        kinds.CLUSTER_QUEUE,
        name,
        spec={"resourceGroups": groups} | ({"cohortName": cohort} if cohort else {}),
        status={"flavorsReservation": [{"name": "any", "resources": used}]},
    )


def a_job(**fields: Any) -> MPIJob:
    base: dict[str, Any] = {"name": "bert", "namespace": NAMESPACE, "workers": 4, "image": "example/mpi:1"}
    base |= {"command": ("python", "train.py"), "resources": Resources(cpu="1", memory="1Gi")}
    return MPIJob(**base | fields)


def gathered(api: FakeApi, job: MPIJob, served: frozenset[str] = SERVED) -> PreflightResult:
    return preflight.gather(api, job, served, Settings())


def told(api: FakeApi, job: MPIJob, served: frozenset[str] = SERVED) -> tuple[Finding, ...]:
    return admission.admit(job, JANE, gathered(api, job, served).facts)


def refused(
    api: FakeApi, job: MPIJob, kind: type[MpiJobError], served: frozenset[str] = SERVED
) -> MpiJobError:
    with pytest.raises(kind) as caught:
        told(api, job, served)
    assert caught.value.hint
    return caught.value


def one(findings: tuple[Finding, ...], code: str) -> Finding:
    (found,) = [finding for finding in findings if finding.code == code]
    return found


def with_gpus() -> FakeApi:
    """Return a cluster of four machines with eight GPUs each."""
    api = FakeApi()
    for number in range(4):
        a_node(api, f"gpu-{number}", gpus=8)
    return api
