"""The reads of a preflight, and what is unknown when one of them is refused.

The first round is read from every cluster at once, the second only if the first shows that it matters.
`preflight` turns the results into facts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.concurrent import ReadResult
from mpijob.backends.kubernetes.client.resources import Kind
from mpijob.backends.kubernetes.logs import secret_values
from mpijob.backends.kubernetes.preflight import kueue_facts, namespace_policies, node_capacity, permissions
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.formats.sizing.engine_selection import Engine
from mpijob.model import MPIJob

if TYPE_CHECKING:
    from mpijob.backends.kubernetes.client.api import Api

Calls = dict[str, Callable[[], Any]]
ENGINES = {Engine.TRAINER: resources.TRAINJOB, Engine.MPI_OPERATOR: resources.MPIJOB}
_CLAIM = Kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims")
_CSI_DRIVER = Kind("storage.k8s.io/v1", "CSIDriver", "csidrivers", namespaced=False)
_KUEUE_FLAVOR = Kind(resources.KUEUE_API, "ResourceFlavor", "resourceflavors", namespaced=False)
_VOLCANO_QUEUE = Kind("scheduling.volcano.sh/v1beta1", "Queue", "queues", namespaced=False)
_LIMITS = Kind(f"{well_known.DOMAIN}/v1alpha1", "MPIJobLimits", "mpijoblimits", namespaced=False)
# The older version of the API, which Kueue still serves; older releases serve only this one.
_KUEUE_BEFORE = "kueue.x-k8s.io/v1beta1"
_RUNNING = "status.phase!=Succeeded,status.phase!=Failed"
MEANINGS = {
    "rights": ("your rights (SelfSubjectRulesReview)", "whether you may create the job"),
    "quotas": ("ResourceQuotas", "free quota of the namespace"),
    "ranges": ("LimitRanges", "whether the namespace allows containers of this size"),
    "policies": ("NetworkPolicies", "whether launcher and workers may talk to each other"),
    "namespace": ("the namespace itself", "its Pod Security level and service mesh"),
    "queues": ("LocalQueues", "whether the job's queue exists"),
    "cluster_queues": ("ClusterQueues", "the queue's quota and what is free in it"),
    "nodes": ("nodes", "free capacity of the nodes"),
    "pods": ("pods of all namespaces", "how much of the machines is free now"),
    "classes": ("PriorityClasses", "whether the job's priority has a class"),
}


def first_round(api: Api, job: MPIJob, served: frozenset[str]) -> Calls:
    """Return the reads for which only the job and the served APIs must be known."""
    namespace = job.namespace
    calls: Calls = {
        "rights": lambda: permissions.review(api, namespace),
        "namespace": lambda: api.get(resources.NAMESPACE.path("", namespace)),
        "quotas": lambda: api.list(resources.RESOURCE_QUOTA.path(namespace)),
        "ranges": lambda: api.list(resources.LIMIT_RANGE.path(namespace)),
        "policies": lambda: api.list(resources.NETWORK_POLICY.path(namespace)),
        "nodes": lambda: api.list(resources.NODE.path()),
        "pods": lambda: api.get(
            resources.POD.path(), fieldSelector=_RUNNING, limit=str(node_capacity.MOST_PODS)
        ),
    }
    there = [kind for kind in ENGINES.values() if kind.api in served]
    calls |= {f"{kind.plural} named": _lister(api, kind, job) for kind in there}
    calls |= {f"{kind.plural} plain": _finder(api, kind, job) for kind in there}
    calls |= {f"claim {name}": _claim(api, namespace, name) for name in namespace_policies.claim_names(job)}
    if job.network.isolated and secret_values.has_addresses(job):
        calls["addresses"] = lambda: secret_values.addresses(api, job)
    if namespace_policies.wants_priority(job):
        calls["classes"] = lambda: api.list(resources.PRIORITY_CLASS.path())
    if namespace_policies.wants_nfs(job):
        calls["drivers"] = lambda: api.list(_CSI_DRIVER.path())
    if job.queue and _VOLCANO_QUEUE.api in served:
        calls["volcano"] = lambda: api.find(_VOLCANO_QUEUE.path("", job.queue))
    if _LIMITS.api in served:
        calls["limits"] = lambda: api.find(_LIMITS.path("", namespace))
    if version := kueue_version(served):
        calls["queues"] = lambda: api.list(resources.LOCAL_QUEUE._replace(api=version).path(namespace))
        calls |= _queue_reads(api, job, version) if job.queue else {}
    return calls


def second_round(api: Api, job: MPIJob, reads: Mapping[str, ReadResult], served: frozenset[str]) -> Calls:
    """Return the reads of the default queue's quota, if the job goes there."""
    version = kueue_version(served)
    if (
        not version
        or job.queue
        or kueue_facts.DEFAULT_QUEUE not in namespace_policies.names(reads["queues"].items)
    ):
        return {}
    return _queue_reads(api, job, version)


def kueue_version(served: frozenset[str]) -> str:
    """Return the newest version of Kueue's API that the cluster serves, or ""."""
    return next((version for version in (resources.KUEUE_API, _KUEUE_BEFORE) if version in served), "")


def _queue_reads(api: Api, job: MPIJob, version: str) -> Calls:
    calls: Calls = {"cluster_queues": lambda: api.list(resources.CLUSTER_QUEUE._replace(api=version).path())}
    if namespace_policies.wants_priority(job):
        calls["workload_classes"] = lambda: api.list(resources.WORKLOAD_PRIORITY._replace(api=version).path())
    if job.placement.topology.value.startswith("packed"):
        calls["flavors"] = lambda: api.list(_KUEUE_FLAVOR._replace(api=version).path())
    return calls


def _lister(api: Api, kind: Kind, job: MPIJob) -> Callable[[], Any]:
    return lambda: api.list(kind.path(job.namespace), labels=f"{well_known.JOB_LABEL}={job.name}")


def _finder(api: Api, kind: Kind, job: MPIJob) -> Callable[[], Any]:
    return lambda: api.find(kind.path(job.namespace, job.name))


def _claim(api: Api, namespace: str, name: str) -> Callable[[], Any]:
    return lambda: api.find(_CLAIM.path(namespace, name))


def meanings(job: MPIJob) -> dict[str, tuple[str, str]]:
    """Return what each read is called in messages, and what is unknown without it."""
    claims = {
        f"claim {name}": (f"volume claim {name}", "whether it exists and may be shared")
        for name in namespace_policies.claim_names(job)
    }
    return MEANINGS | claims
