"""The overview of a cluster: jobs, GPUs and limits of all namespaces, queues, and preemptions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from mpijob.backends.kubernetes.admin import namespace_limits
from mpijob.backends.kubernetes.client import concurrent, resources
from mpijob.backends.kubernetes.client.api import Api
from mpijob.backends.kubernetes.client.api_errors import translated
from mpijob.backends.kubernetes.preflight import kueue_facts
from mpijob.backends.kubernetes.status import list_jobs
from mpijob.errors import BackendError
from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.formats.sizing import resource_requests
from mpijob.formats.status import kueue_workload
from mpijob.formats.status.nested_fields import moment, text
from mpijob.model import JobState, Scope
from mpijob.model.platform.governance import NamespaceLimits, limits_of
from mpijob.model.status.overview import ClusterView, Line, NamespaceView, Preemption, QueueView

_RUNNING = "status.phase!=Succeeded,status.phase!=Failed"
_JOB_UID = "kueue.x-k8s.io/job-uid"
_SYSTEM = ("kube-", "openshift-")
_NAMES = {
    "namespaces": "namespaces",
    "nodes": "nodes",
    "pods": "pods of all namespaces",
    "quotas": "ResourceQuotas",
    "limits": "MPIJobLimits",
    "local": "LocalQueues",
    "cluster": "ClusterQueues",
    "workloads": "Workloads",
    "jobs": "jobs",
}


def read(api: Api) -> ClusterView:
    """Return the overview; what the administrator may not read is in `unread`."""
    calls: dict[str, Any] = {
        "namespaces": lambda: api.list(resources.NAMESPACE.path()),
        "nodes": lambda: api.list(resources.NODE.path()),
        "pods": lambda: api.list(resources.POD.path(), fieldSelector=_RUNNING),
        "quotas": lambda: api.list(resources.RESOURCE_QUOTA.path()),
        "limits": lambda: api.list(namespace_limits.LIMITS.path()),
        "local": lambda: api.list(resources.LOCAL_QUEUE.path()),
        "cluster": lambda: api.list(resources.CLUSTER_QUEUE.path()),
        "workloads": lambda: api.list(resources.WORKLOAD.path()),
        "jobs": lambda: _jobs(api),
    }
    with translated("read the cluster state"):
        reads = concurrent.together(calls, api.lanes())
    held = _gpus_by_namespace(reads["pods"].items)
    nodes = reads["nodes"].items
    return ClusterView(
        namespaces=tuple(_namespaces(reads, held)),
        queues=tuple(_queue(queue) for queue in reads["cluster"].items),
        gpus=sum(_gpus((node.get("status") or {}).get("allocatable") or {}) for node in nodes),
        gpus_held=sum(held.values()),
        preemptions=tuple(_preemptions(reads["workloads"].items)),
        unread=tuple(_NAMES[key] for key, result in reads.items() if result.refused),
    )


def _jobs(api: Api) -> tuple[JobState, ...]:
    found: list[JobState] = []
    scope = Scope(namespace="", limit=500)
    while True:
        page = list_jobs.page(api, scope)
        found += page.items
        if not page.after:
            return tuple(found)
        scope = msgspec.structs.replace(scope, after=page.after)


def _namespaces(reads: concurrent.ReadResults, held: Counter[str]) -> Iterator[NamespaceView]:
    jobs = reads["jobs"].value or ()
    limits = {item["metadata"]["name"]: limits_of(item) for item in reads["limits"].items}
    quotas = _by_namespace(reads["quotas"].items)
    local = _by_namespace(reads["local"].items)
    phases: dict[str, Counter[str]] = {}
    for state in jobs:
        phases.setdefault(state.ref.namespace, Counter())[state.phase.value] += 1
    known = {item["metadata"]["name"] for item in reads["namespaces"].items}
    for name in sorted({*phases, *limits, *quotas, *local, *held} & known if known else phases):
        # Namespaces of the cluster itself, unless they have jobs.
        if name.startswith(_SYSTEM) and name not in phases:
            continue
        view = NamespaceView(
            name=name,
            jobs=dict(phases.get(name, {})),
            gpus=held.get(name, 0),
            queues=tuple(sorted(queue["metadata"]["name"] for queue in local.get(name, ()))),
        )
        lines = [line for quota in quotas.get(name, ()) for line in namespace_limits.lines_of(quota)]
        lines += _limit_lines(limits.get(name), view)
        yield msgspec.structs.replace(view, lines=tuple(lines))


def _limit_lines(limits: NamespaceLimits | None, view: NamespaceView) -> Iterator[Line]:
    if limits is None:
        return
    if limits.concurrent_jobs is not None:
        used, most = float(view.running), float(limits.concurrent_jobs)
        yield Line(source="MPIJobLimits", resource="jobs", used=used, most=most)
    if limits.max_gpus is not None:
        yield Line(
            source="MPIJobLimits", resource="nvidia.com/gpu", used=view.gpus, most=float(limits.max_gpus)
        )


def _queue(document: Document) -> QueueView:
    status = document.get("status") or {}
    active, _ = kueue_facts.active(document)
    share = (status.get("fairSharing") or {}).get("weightedShare")
    return QueueView(
        name=document["metadata"]["name"],
        cohort=kueue_facts.cohort(document),
        active=active,
        waiting=int(status.get("pendingWorkloads") or 0),
        running=int(status.get("admittedWorkloads") or 0),
        lines=tuple(_queue_lines(document)),
        fair_share=None if share is None else float(share),
    )


def _queue_lines(document: Document) -> Iterator[Line]:
    for key, limits in kueue_facts.quotas(document):
        yield Line(
            source=f"flavor {key[0]}",
            resource=key[1],
            used=kueue_facts.reserved(document, key),
            most=resource_requests.number(limits.get("nominalQuota", 0)),
        )


def _preemptions(workloads: list[Document]) -> Iterator[Preemption]:
    by_uid = {(workload["metadata"].get("labels") or {}).get(_JOB_UID): workload for workload in workloads}
    for workload in workloads:
        found = kueue_workload.preempted(workload)
        if found is None:
            continue
        reason = kueue_workload.read(workload, "", None, by_uid.get(kueue_workload.taker(workload)))
        owners: list[Document] = workload["metadata"].get("ownerReferences") or [{}]
        yield Preemption(
            namespace=workload["metadata"]["namespace"],
            job=str(owners[0].get("name") or text(workload, "metadata", "name")),
            time=moment(found, "lastTransitionTime") or 0.0,
            message=reason.text if reason is not None else "",
        )


def _by_namespace(documents: Iterable[Document]) -> dict[str, list[Document]]:
    found: dict[str, list[Document]] = {}
    for document in documents:
        found.setdefault(document["metadata"]["namespace"], []).append(document)
    return found


def _gpus_by_namespace(pods: Iterable[Document]) -> Counter[str]:
    held: Counter[str] = Counter()
    for pod in pods:
        if (pod.get("spec") or {}).get("nodeName") and (gpus := _gpus(resource_requests.requested(pod))):
            held[pod["metadata"]["namespace"]] += int(gpus)
    return held


def _gpus(amounts: dict[str, Any]) -> float:
    return sum(resource_requests.number(amount) for name, amount in amounts.items() if name.endswith("/gpu"))


def refuse_unreadable(overview: ClusterView) -> None:
    """Raise BackendError for an overview in which nothing could be read."""
    if not overview.namespaces and "jobs" in overview.unread:
        raise BackendError(
            "you may not read any namespace of this cluster", hint="ask for the role mpijob-admin"
        )
