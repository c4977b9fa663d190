"""Kueue's Workloads as numbers for capacity planning: requests, usage and times, without names of users."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import msgspec

from mpijob.formats.sizing import resource_requests
from mpijob.formats.status import kueue_workload
from mpijob.formats.status.nested_fields import conditions, holds, moment, number, parts, text
from mpijob.model.platform.cluster_observation import WaitKind

_JOB_UID = "kueue.x-k8s.io/job-uid"
_PROGRAM_FIELDS = ("image", "command", "args")
_STUCK = (WaitKind.TOO_LARGE, WaitKind.MISSING, WaitKind.CLOSED, WaitKind.DEACTIVATED)


class WorkloadUsage(msgspec.Struct, frozen=True, kw_only=True):
    """One Workload. `admitted` and `finished` are None before; a `stuck` one can never be admitted.

    `owner` is the uid of the job's object, `program` is equal for Workloads with the same containers and counts,
    `workers` the size of the largest pod set, `since` the time when it was queued, `short` the quota that Kueue
    reports as missing.
    """

    queue: str
    namespace: str
    owner: str = ""
    program: str = ""
    workers: int = 0
    priority: int = 0
    created: float = 0.0
    since: float = 0.0
    short: Mapping[str, float] = {}
    admitted: float | None = None
    finished: float | None = None
    stuck: bool = False
    amounts: Mapping[str, float] = {}


def read(workload: Mapping[str, Any]) -> WorkloadUsage:
    known = conditions(workload)
    admitted, finished = known.get("Admitted"), known.get("Finished")
    queueing = kueue_workload.read(workload, "", None)
    created = moment(workload, "metadata", "creationTimestamp") or 0.0
    return WorkloadUsage(
        queue=text(workload, "spec", "queueName"),
        namespace=text(workload, "metadata", "namespace"),
        priority=number(workload, "spec", "priority") or 0,
        owner=_owner(workload),
        program=_program(workload),
        workers=max(
            (number(pod_set, "count") or 0 for pod_set in parts(workload, "spec", "podSets")), default=0
        ),
        created=created,
        since=(queueing.since if queueing is not None else None) or created,
        short=kueue_workload.missing(text(known.get("QuotaReserved"), "message")),
        admitted=moment(admitted, "lastTransitionTime") if holds(admitted) else None,
        finished=moment(finished, "lastTransitionTime") if holds(finished) else None,
        stuck=queueing is not None and queueing.hold in _STUCK,
        amounts=_held(workload) or _asked(workload),
    )


def _owner(workload: Mapping[str, Any]) -> str:
    labelled = text(workload, "metadata", "labels", _JOB_UID)
    owners = parts(workload, "metadata", "ownerReferences")
    return labelled or next((text(owner, "uid") for owner in owners if text(owner, "uid")), "")


def _program(workload: Mapping[str, Any]) -> str:

    shape = [
        (
            number(pod_set, "count"),
            [[container.get(key) for key in _PROGRAM_FIELDS] for container in _containers(pod_set)],
        )
        for pod_set in parts(workload, "spec", "podSets")
    ]
    if not any(any(fields) for _, containers in shape for fields in containers):
        # The caller's role may not read pod templates.
        return ""
    return hashlib.blake2b(json.dumps(shape, default=str).encode(), digest_size=8).hexdigest()


def _containers(pod_set: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return parts(pod_set, "template", "spec", "containers")


def _held(workload: Mapping[str, Any]) -> dict[str, float]:
    total: dict[str, float] = {}
    for assignment in parts(workload, "status", "admission", "podSetAssignments"):
        for name, amount in (assignment.get("resourceUsage") or {}).items():
            total[name] = total.get(name, 0.0) + resource_requests.number(amount)
    return total


def _asked(workload: Mapping[str, Any]) -> dict[str, float]:
    total: dict[str, float] = {}
    for pod_set in parts(workload, "spec", "podSets"):
        count = number(pod_set, "count") or 0
        for name, amount in resource_requests.requested(pod_set.get("template") or {}).items():
            total[name] = total.get(name, 0.0) + count * amount
    return total
