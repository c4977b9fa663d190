"""Kueue's queues: whether the job's queue exists and is open, its quota, and what is free of it.

The quota is in the ClusterQueue, which many users may not read; then `shares` is None, and only the
LocalQueue's counts are known. Cohorts with quotas of their own are not counted, so the real share may be
larger.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.formats.sizing import resource_requests
from mpijob.model import MPIJob
from mpijob.model.platform.cluster import QueueFacts, Share

# Kueue puts jobs without a queue into the LocalQueue of this name, if it exists (LocalQueueDefaulting).
DEFAULT_QUEUE = "default"


def of(job: MPIJob, local: Sequence[Document], cluster: Sequence[Document] | None) -> QueueFacts | None:
    """Return the job's queue, None if it goes to none; `cluster` is None if ClusterQueues cannot be read."""
    known = {queue["metadata"]["name"]: queue for queue in local}
    name = job.queue or (DEFAULT_QUEUE if DEFAULT_QUEUE in known else "")
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
    """Return whether a queue admits jobs, and the reason if not."""
    if (queue.get("spec") or {}).get("stopPolicy") in ("Hold", "HoldAndDrain"):
        return False, "it is stopped"
    for condition in (queue.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Active" and condition.get("status") == "False":
            return False, str(condition.get("message") or condition.get("reason") or "")
    return True, ""


def shares(name: str, cluster: Sequence[Document] | None) -> tuple[Share, ...] | None:
    """Return the most that a ClusterQueue could give of each resource, and what is free; None if unreadable."""
    mine = next((queue for queue in cluster or () if queue["metadata"]["name"] == name), None)
    if mine is None or cluster is None:
        return None
    group = cohort(mine)
    others = [queue for queue in cluster if queue is not mine and group and cohort(queue) == group]
    return tuple(_share(key, limits, mine, others, bool(group)) for key, limits in quotas(mine))


def cohort(queue: Document) -> str:
    """Return the cohort of a ClusterQueue, "" for none."""
    spec = queue.get("spec") or {}
    # v1beta1 calls the field `cohort`.
    return str(spec.get("cohortName") or spec.get("cohort") or "")


def quotas(queue: Document) -> Iterator[tuple[tuple[str, str], Mapping[str, Any]]]:
    """Yield flavor and resource of a ClusterQueue with their limits."""
    for group in (queue.get("spec") or {}).get("resourceGroups") or ():
        for flavor in group.get("flavors") or ():
            for resource in flavor.get("resources") or ():
                yield (flavor["name"], resource["name"]), resource


def reserved(queue: Document, key: tuple[str, str]) -> float:
    """Return how much of a resource of a flavor is reserved."""
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
        # Negative for a queue that borrows.
        idle += min(lendable, own - used)
    most = min(ceiling, nominal + lent)
    free = min(ceiling - held, nominal - held + idle)
    return Share(flavor=key[0], resource=key[1], most=most, free=max(0.0, min(free, most)))


def _or(limits: Mapping[str, Any], field: str, default: float) -> float:
    return default if limits.get(field) is None else resource_requests.number(limits[field])
