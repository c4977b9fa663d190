"""Kueue's queues as values: does the job's queue exist, is it open, what could it give, what is free in it.

The quota is in the ClusterQueue, which many users may not read; then `shares` stays None and only the
LocalQueue's own counts are told. Cohorts with quotas of their own are not counted: a share is never less
than what is said here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.formats.sizing import resource_requests
from mpijob.model import MPIJob
from mpijob.model.platform.cluster import QueueFacts, Share

BY_DEFAULT = "default"  # Kueue puts jobs without a queue into the LocalQueue of this name, if there is one


def of(job: MPIJob, local: Sequence[Document], cluster: Sequence[Document] | None) -> QueueFacts | None:
    """Return the queue that the job goes to, or None when it goes to none; `cluster` is None when unreadable."""
    known = {one["metadata"]["name"]: one for one in local}
    name = job.queue or (BY_DEFAULT if BY_DEFAULT in known else "")
    if not name:
        return None
    if name not in known:
        return QueueFacts(name=name, found=False, others=tuple(sorted(known)))
    queue = known[name]
    behind = str((queue.get("spec") or {}).get("clusterQueue") or "")
    status = queue.get("status") or {}
    is_active, reason = active(queue)
    return QueueFacts(
        name=name,
        named=bool(job.queue),
        active=is_active,
        reason=reason,
        behind=behind,
        waiting=int(status.get("pendingWorkloads") or 0),
        running=int(status.get("admittedWorkloads") or 0),
        shares=shares(behind, cluster),
    )


def active(queue: Document) -> tuple[bool, str]:
    """Return whether a queue admits jobs, and if not, why."""
    if (queue.get("spec") or {}).get("stopPolicy") in ("Hold", "HoldAndDrain"):
        return False, "it is stopped"
    for one in (queue.get("status") or {}).get("conditions") or ():
        if one.get("type") == "Active" and one.get("status") == "False":
            return False, str(one.get("message") or one.get("reason") or "")
    return True, ""


def shares(name: str, cluster: Sequence[Document] | None) -> tuple[Share, ...] | None:
    """Return what a ClusterQueue could give at most and what is free of it; None where it cannot be read."""
    mine = next((one for one in cluster or () if one["metadata"]["name"] == name), None)
    if mine is None or cluster is None:
        return None
    group = cohort(mine)
    others = [one for one in cluster if one is not mine and group and cohort(one) == group]
    return tuple(_share(key, limits, mine, others, bool(group)) for key, limits in quotas(mine))


def cohort(queue: Document) -> str:
    """Return the group of queues that lend to each other to which this one belongs, "" for none."""
    spec = queue.get("spec") or {}
    return str(spec.get("cohortName") or spec.get("cohort") or "")


def quotas(queue: Document) -> Iterator[tuple[tuple[str, str], Mapping[str, Any]]]:
    """Yield what a ClusterQueue may give: flavor and resource, and its limits."""
    for group in (queue.get("spec") or {}).get("resourceGroups") or ():
        for flavor in group.get("flavors") or ():
            for resource in flavor.get("resources") or ():
                yield (flavor["name"], resource["name"]), resource


def reserved(queue: Document, key: tuple[str, str]) -> float:
    """Return how much of a resource of a flavor is taken."""
    flavors = (queue.get("status") or {}).get("flavorsReservation") or ()
    return sum(
        resource_requests.number(resource.get("total", 0))
        for flavor in flavors
        if flavor.get("name") == key[0]
        for resource in flavor.get("resources") or ()
        if resource.get("name") == key[1]
    )


def _share(
    key: tuple[str, str],
    limits: Mapping[str, Any],
    mine: Document,
    others: Iterable[Document],
    in_cohort: bool,
) -> Share:
    nominal, held = resource_requests.number(limits.get("nominalQuota", 0)), reserved(mine, key)
    ceiling = nominal + (_or(limits, "borrowingLimit", math.inf) if in_cohort else 0.0)
    lent, idle = 0.0, 0.0
    for other in others:
        theirs = dict(quotas(other)).get(key, {})
        own, used = resource_requests.number(theirs.get("nominalQuota", 0)), reserved(other, key)
        lendable = min(own, _or(theirs, "lendingLimit", math.inf))
        lent += lendable
        idle += min(lendable, own - used)  # negative for one that borrows itself
    most = min(ceiling, nominal + lent)
    free = min(ceiling - held, nominal - held + idle)
    return Share(flavor=key[0], resource=key[1], most=most, free=max(0.0, min(free, most)))


def _or(limits: Mapping[str, Any], field: str, default: float) -> float:
    return default if limits.get(field) is None else resource_requests.number(limits[field])
