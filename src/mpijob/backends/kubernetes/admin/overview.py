"""The whole cluster at a glance: jobs, GPUs and limits of every namespace, queues, and who had to make way."""

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


def look(api: Api) -> ClusterView:
    """Return everything that an administrator sees at once; what may not be read is named."""
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
        seen = concurrent.together(calls, api.lanes())
    held = _gpus_by_namespace(seen["pods"].items)
    nodes = seen["nodes"].items
    return ClusterView(
        namespaces=tuple(_namespaces(seen, held)),
        queues=tuple(_queue(one) for one in seen["cluster"].items),
        gpus=sum(_gpus((node.get("status") or {}).get("allocatable") or {}) for node in nodes),
        gpus_held=sum(held.values()),
        preemptions=tuple(_preemptions(seen["workloads"].items)),
        unread=tuple(_NAMES[key] for key, answer in seen.items() if answer.refused),
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


def _namespaces(seen: concurrent.ReadResults, held: Counter[str]) -> Iterator[NamespaceView]:
    jobs = seen["jobs"].value or ()
    limits = {one["metadata"]["name"]: limits_of(one) for one in seen["limits"].items}
    quotas = _by_namespace(seen["quotas"].items)
    local = _by_namespace(seen["local"].items)
    phases: dict[str, Counter[str]] = {}
    for state in jobs:
        phases.setdefault(state.ref.namespace, Counter())[state.phase.value] += 1
    known = {one["metadata"]["name"] for one in seen["namespaces"].items}
    for name in sorted({*phases, *limits, *quotas, *local, *held} & known if known else phases):
        if name.startswith(_SYSTEM) and name not in phases:
            continue
        view = NamespaceView(
            name=name,
            jobs=dict(phases.get(name, {})),
            gpus=held.get(name, 0),
            queues=tuple(sorted(one["metadata"]["name"] for one in local.get(name, ()))),
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
    by_uid = {(one["metadata"].get("labels") or {}).get(_JOB_UID): one for one in workloads}
    for one in workloads:
        found = kueue_workload.preempted(one)
        if found is None:
            continue
        told = kueue_workload.read(one, "", None, by_uid.get(kueue_workload.taker(one)))
        owners: list[Document] = one["metadata"].get("ownerReferences") or [{}]
        yield Preemption(
            namespace=one["metadata"]["namespace"],
            job=str(owners[0].get("name") or text(one, "metadata", "name")),
            time=moment(found, "lastTransitionTime") or 0.0,
            message=told.text if told is not None else "",
        )


def _by_namespace(documents: Iterable[Document]) -> dict[str, list[Document]]:
    found: dict[str, list[Document]] = {}
    for one in documents:
        found.setdefault(one["metadata"]["namespace"], []).append(one)
    return found


def _gpus_by_namespace(pods: Iterable[Document]) -> Counter[str]:
    held: Counter[str] = Counter()
    for pod in pods:
        if (pod.get("spec") or {}).get("nodeName") and (gpus := _gpus(resource_requests.requested(pod))):
            held[pod["metadata"]["namespace"]] += int(gpus)
    return held


def _gpus(amounts: dict[str, Any]) -> float:
    return sum(resource_requests.number(amount) for name, amount in amounts.items() if name.endswith("/gpu"))


def refuse_blind(overview: ClusterView) -> None:
    """Refuse to show a cluster of which nothing may be seen."""
    if not overview.namespaces and "jobs" in overview.unread:
        raise BackendError(
            "you may not read any namespace of this cluster", hint="ask for the role mpijob-admin"
        )
