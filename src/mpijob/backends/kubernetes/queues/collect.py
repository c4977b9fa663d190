"""Reads Kueue's queues: Workloads, quotas, and the order in which Kueue considers them.

Users who may not read Workloads of other namespaces get those of their own, and `forecasts` reports what is
unknown then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mpijob.backends.kubernetes.client import concurrent, resources
from mpijob.backends.kubernetes.client.api import Api
from mpijob.backends.kubernetes.client.api_errors import ApiError
from mpijob.backends.kubernetes.client.concurrent import ReadResults
from mpijob.backends.kubernetes.queues.forecasts import Seen
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.formats.status import job_conditions, kueue_usage
from mpijob.formats.status.kueue_usage import WorkloadUsage

# A program, and its number of workers.
Key = tuple[str, int]
History = Callable[[Iterable[Key]], Mapping[Key, tuple[float, ...]]]
_MAX_PENDING = "1000"


def queues(
    api: Api, namespace: str, served: frozenset[str], history: History = lambda keys: {}
) -> tuple[Seen, ...]:
    """Return the ClusterQueues of a namespace's LocalQueues ("" for all), as far as they can be read.

    `history` returns how long programs ran before, by the program's label and the number of workers.
    """
    reads = _read(api, namespace, served)
    local = reads["local"].items
    cluster_queues = sorted({_cluster_queue(queue) for queue in local} - {""})
    if not cluster_queues:
        return ()
    everywhere = reads["workloads of all"]
    workloads = everywhere.items if everywhere.value is not None else reads["workloads"].items
    seen_from = reads["local of all"].items if reads["local of all"].value is not None else local
    entries = [kueue_usage.read(workload) for workload in workloads]
    jobs = [job for kind in _kinds(served) for job in reads[kind.plural].items]
    deadlines, programs = _deadlines(jobs), _programs(jobs)
    past = _past(entries, programs, history)
    clusters = reads["cluster"].items if reads["cluster"].value is not None else None
    return tuple(
        Seen(
            name=name,
            queues=clusters,
            entries=_of_queue(entries, seen_from, name),
            places=_places(api, name, [queue for queue in local if _cluster_queue(queue) == name], served),
            deadlines=deadlines,
            history=past,
        )
        for name in cluster_queues
    )


def _read(api: Api, namespace: str, served: frozenset[str]) -> ReadResults:
    calls: dict[str, Any] = {
        "local": lambda: api.list(resources.LOCAL_QUEUE.path(namespace)),
        "cluster": lambda: api.list(resources.CLUSTER_QUEUE.path()),
        "workloads of all": lambda: api.list(resources.WORKLOAD.path()),
    }
    for kind in _kinds(served):
        calls[kind.plural] = _lister(api, kind.path(namespace))
    if namespace:
        calls["workloads"] = lambda: api.list(resources.WORKLOAD.path(namespace))
        calls["local of all"] = lambda: api.list(resources.LOCAL_QUEUE.path())
    return concurrent.together(calls, api.lanes())


def _lister(api: Api, path: str) -> Callable[[], Any]:
    return lambda: api.list(path)


def _kinds(served: frozenset[str]) -> list[resources.Kind]:
    return [kind for kind in (resources.TRAINJOB, resources.MPIJOB) if kind.api in served]


def _cluster_queue(local: Document) -> str:
    return str((local.get("spec") or {}).get("clusterQueue") or "")


def _of_queue(
    entries: Iterable[WorkloadUsage], local: Iterable[Document], name: str
) -> tuple[WorkloadUsage, ...]:
    mine = {
        (queue["metadata"]["namespace"], queue["metadata"]["name"])
        for queue in local
        if _cluster_queue(queue) == name
    }
    return tuple(entry for entry in entries if (entry.namespace, entry.queue) in mine)


def _deadlines(jobs: Iterable[Document]) -> dict[str, float]:
    """Return the deadlines of jobs in seconds after their start, by the uids of their objects."""
    found: dict[str, float] = {}
    for job in jobs:
        seconds = job_conditions.deadline_of(job)
        if seconds is not None:
            found[job["metadata"]["uid"]] = seconds
    return found


def _programs(jobs: Iterable[Document]) -> dict[str, str]:
    named = ((job["metadata"]["uid"], job["metadata"].get("labels") or {}) for job in jobs)
    return {
        uid: labels[well_known.PROGRAM_LABEL] for uid, labels in named if well_known.PROGRAM_LABEL in labels
    }


def _past(
    entries: Iterable[WorkloadUsage], programs: Mapping[str, str], history: History
) -> dict[str, tuple[float, ...]]:
    """Return how long the programs of unfinished jobs ran before, by the uids of their objects."""
    keys = {
        entry.owner: (programs[entry.owner], entry.workers)
        for entry in entries
        if entry.finished is None and entry.owner in programs
    }
    if not keys:
        return {}
    known = history({*keys.values()})
    return {owner: known[key] for owner, key in keys.items() if key in known}


def _places(api: Api, name: str, local: Iterable[Document], served: frozenset[str]) -> dict[str, int]:
    """Return Kueue's own order of a ClusterQueue by the uids of the jobs, as far as it may be read."""
    if resources.VISIBILITY_API not in served:
        return {}
    try:
        pending = resources.PENDING_OF_CLUSTER.path("", name, "pendingworkloads")
        return _positions(api.get(pending, limit=_MAX_PENDING))
    except ApiError:
        found: dict[str, int] = {}
    # Users may usually read the order of their LocalQueues only.
    for queue in local:
        path = resources.PENDING.path(
            queue["metadata"]["namespace"], queue["metadata"]["name"], "pendingworkloads"
        )
        try:
            found |= _positions(api.get(path, limit=_MAX_PENDING))
        except ApiError:
            # Kueue is down, or the user may not read it: then the Workloads' own order is used.
            continue
    return found


def _positions(summary: Document) -> dict[str, int]:
    return {
        owner["uid"]: int(item.get("positionInClusterQueue", 0))
        for item in summary.get("items") or ()
        for owner in item["metadata"].get("ownerReferences") or ()
    }
