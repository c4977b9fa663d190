"""Kueue's Workloads as numbers: what one asks for or holds, since when, and how long it took. No names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from mpijob.formats.sizing import resource_requests
from mpijob.formats.status import kueue_workload
from mpijob.formats.status.nested_fields import conditions, holds, moment, number, parts, text
from mpijob.model.platform.cluster_observation import WaitKind

_STUCK = (WaitKind.TOO_LARGE, WaitKind.MISSING, WaitKind.CLOSED, WaitKind.DEACTIVATED)


class WorkloadUsage(msgspec.Struct, frozen=True, kw_only=True):
    """One Workload: `admitted` and `finished` are None where it is not (yet); `stuck` cannot be admitted at all."""

    queue: str
    namespace: str
    priority: int = 0
    created: float = 0.0
    admitted: float | None = None
    finished: float | None = None
    stuck: bool = False
    amounts: Mapping[str, float] = {}


def read(workload: Mapping[str, Any]) -> WorkloadUsage:
    """Return a Workload as numbers."""
    known = conditions(workload)
    admitted, finished = known.get("Admitted"), known.get("Finished")
    told = kueue_workload.read(workload, "", None)
    return WorkloadUsage(
        queue=text(workload, "spec", "queueName"),
        namespace=text(workload, "metadata", "namespace"),
        priority=number(workload, "spec", "priority") or 0,
        created=moment(workload, "metadata", "creationTimestamp") or 0.0,
        admitted=moment(admitted, "lastTransitionTime") if holds(admitted) else None,
        finished=moment(finished, "lastTransitionTime") if holds(finished) else None,
        stuck=told is not None and told.hold in _STUCK,
        amounts=_held(workload) or _asked(workload),
    )


def _held(workload: Mapping[str, Any]) -> dict[str, float]:
    total: dict[str, float] = {}
    for one in parts(workload, "status", "admission", "podSetAssignments"):
        for name, amount in (one.get("resourceUsage") or {}).items():
            total[name] = total.get(name, 0.0) + resource_requests.number(amount)
    return total


def _asked(workload: Mapping[str, Any]) -> dict[str, float]:
    total: dict[str, float] = {}
    for one in parts(workload, "spec", "podSets"):
        count = number(one, "count") or 0
        for name, amount in resource_requests.requested(one.get("template") or {}).items():
            total[name] = total.get(name, 0.0) + count * amount
    return total
