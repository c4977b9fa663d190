"""Reading Kueue's queues, as far as somebody may: Workloads, quotas, the order in which Kueue will look at them.

All of it is read side by side. Whoever may not read other namespaces' Workloads gets those of the own one, and
`forecasts` says what that leaves open.
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

Key = tuple[str, int]  # a program, and how many workers run it
History = Callable[[Iterable[Key]], Mapping[Key, tuple[float, ...]]]
_MOST_PENDING = "1000"


def queues(
    api: Api, namespace: str, served: frozenset[str], history: History = lambda keys: {}
) -> tuple[Seen, ...]:
    """Return the ClusterQueues behind the LocalQueues of a namespace (or of all, ""), each as far as it can be read.

    `history` is asked how long programs ran before, by the program's label on its job and the number of workers.
    """
    read = _read(api, namespace, served)
    local = read["local"].items
    behind = sorted({_behind(one) for one in local} - {""})
    if not behind:
        return ()
    everywhere = read["workloads of all"]
    workloads = everywhere.items if everywhere.value is not None else read["workloads"].items
    seen_from = read["local of all"].items if read["local of all"].value is not None else local
    entries = [kueue_usage.read(one) for one in workloads]
    jobs = [job for kind in _kinds(served) for job in read[kind.plural].items]
    deadlines, programs = _deadlines(jobs), _programs(jobs)
    past = _past(entries, programs, history)
    clusters = read["cluster"].items if read["cluster"].value is not None else None
    return tuple(
        Seen(
            name=name,
            queues=clusters,
            entries=_of_queue(entries, seen_from, name),
            places=_places(api, name, [one for one in local if _behind(one) == name], served),
            deadlines=deadlines,
            history=past,
        )
        for name in behind
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


def _behind(local: Document) -> str:
    return str((local.get("spec") or {}).get("clusterQueue") or "")


def _of_queue(
    entries: Iterable[WorkloadUsage], local: Iterable[Document], name: str
) -> tuple[WorkloadUsage, ...]:
    mine = {(one["metadata"]["namespace"], one["metadata"]["name"]) for one in local if _behind(one) == name}
    return tuple(one for one in entries if (one.namespace, one.queue) in mine)


def _deadlines(jobs: Iterable[Document]) -> dict[str, float]:
    """Return when jobs are ended in any case, counted from their start, by their objects' uids."""
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
    """Return how long the programs of jobs that go on ran before, by their objects' uids, as the record has it."""
    keys = {
        one.owner: (programs[one.owner], one.workers)
        for one in entries
        if one.finished is None and one.owner in programs
    }
    if not keys:
        return {}
    known = history({*keys.values()})
    return {owner: known[key] for owner, key in keys.items() if key in known}


def _places(api: Api, name: str, local: Iterable[Document], served: frozenset[str]) -> dict[str, int]:
    """Return Kueue's own order of a ClusterQueue by the uids of the jobs, as far as its visibility API may be asked."""
    if resources.VISIBILITY_API not in served:
        return {}
    try:
        pending = resources.PENDING_OF_CLUSTER.path("", name, "pendingworkloads")
        return _positions(api.get(pending, limit=_MOST_PENDING))
    except ApiError:
        found: dict[str, int] = {}
    for one in local:
        path = resources.PENDING.path(
            one["metadata"]["namespace"], one["metadata"]["name"], "pendingworkloads"
        )
        try:
            found |= _positions(api.get(path, limit=_MOST_PENDING))
        except ApiError:
            continue  # Kueue is away, or this user may not ask: its Workloads' own order has to do
    return found


def _positions(summary: Document) -> dict[str, int]:
    return {
        owner["uid"]: int(item.get("positionInClusterQueue", 0))
        for item in summary.get("items") or ()
        for owner in item["metadata"].get("ownerReferences") or ()
    }
