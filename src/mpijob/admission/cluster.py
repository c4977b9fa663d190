"""Reasons for which only a cluster refuses a job: limits of its namespaces, its queues, nodes and claims.

Permissions, names, and quotas of cores, memory and GPUs are checked in `decision` for all engines; warnings
and notices are in `advisories`. Everything here is refused before any object is created.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from mpijob.admission.advisories import missing_image
from mpijob.admission.capacity import size_fixes, size_hint, whole_size, workers_that_fit
from mpijob.admission.resources import display_name, field_of, format_amount
from mpijob.errors import Finding, InvalidJob, NotAllowed, NotFound, QuotaExceeded
from mpijob.model import Facts, MPIJob
from mpijob.model.platform.cluster import (
    Ask,
    Asked,
    Bound,
    Ceiling,
    Claim,
    ClusterFacts,
    NodeCapacity,
    QueueFacts,
)
from mpijob.model.spec.enums import PRIORITIES, choice_hint

_SHARED_MODES = {"ReadWriteMany", "ReadOnlyMany"}
_EPSILON = 1e-9


def check_cluster(job: MPIJob, facts: Facts, cluster: ClusterFacts) -> None:
    """Raise the first reason for which this cluster would not run the job."""
    _check_namespace(cluster)
    _check_references(job, cluster)
    _check_image(cluster)
    _check_limit_ranges(cluster)
    _check_quota_lines(job, facts, cluster)
    if cluster.queue is not None:
        _check_queue(job, cluster.queue, cluster.asks)
    if cluster.room is not None and not cluster.room.grows:
        _check_nodes(cluster.room)


def _check_namespace(cluster: ClusterFacts) -> None:
    if not cluster.found:
        message = f"namespace '{cluster.namespace}' does not exist"
        raise NotFound(message, hint="create it, or use another one with --namespace")
    if cluster.inline_nfs and cluster.pod_security == "restricted":
        message = (
            f"namespace '{cluster.namespace}' enforces the restricted Pod Security level, "
            "which does not allow NFS volumes that are mounted directly"
        )
        hint = "use a volume claim (kind: claim), or a cluster with a CSI driver for NFS"
        raise NotAllowed(message, hint=hint, findings=(finding("POD_SECURITY", message, hint, "volumes"),))


def _check_references(job: MPIJob, cluster: ClusterFacts) -> None:
    """Raise NotFound for a queue, priority class or claim that does not exist."""
    if cluster.queue is not None and not cluster.queue.found:
        others = cluster.queue.others
        hint = (
            choice_hint(job.queue, others)
            if others
            else "this namespace has no queue: remove `queue` from the job"
        )
        message = f"queue '{cluster.queue.name}' does not exist in namespace '{cluster.namespace}'"
        raise _not_found(message, hint, "queue")
    classes = cluster.priority_classes
    if classes is not None and isinstance(job.priority, str) and job.priority not in (*PRIORITIES, *classes):
        hint = choice_hint(job.priority, (*PRIORITIES, *classes))
        raise _not_found(f"the cluster has no priority class '{job.priority}'", hint, "priority")
    for claim in cluster.claims:
        _check_claim(claim, cluster)


def _check_image(cluster: ClusterFacts) -> None:
    """Raise NotFound for an image that its registry does not have, if the settings require it."""
    answer = cluster.image
    # A node that has the image cached can still run the job.
    if answer is not None and answer.asked is Asked.MISSING and answer.refuse and not answer.held:
        hint = 'check name and tag, or push the image; image_check = "warn" in the settings submits the job anyway'
        raise _not_found(missing_image(cluster), hint, "image")


def _check_claim(claim: Claim, cluster: ClusterFacts) -> None:
    if not claim.found:
        message = f"volume claim '{claim.name}' does not exist in namespace '{cluster.namespace}'"
        raise _not_found(message, "create it first, or correct `source`", "volumes")
    if not claim.modes or _SHARED_MODES & set(claim.modes) or not _spans_nodes(claim, cluster.room):
        return
    message = (
        f"volume claim '{claim.name}' is {', '.join(claim.modes)}: only one node can mount it, "
        "but launcher and workers run on several"
    )
    hint = "use a claim with ReadWriteMany, or restrict the job to one node with placement.node_selector"
    raise InvalidJob.of((finding("CLAIM_NOT_SHARED", message, hint, "volumes"),))


def _spans_nodes(claim: Claim, room: NodeCapacity | None) -> bool:
    """Return whether pods that share the claim may run on several nodes."""
    # Without a right to read nodes it is unknown, and `advisories` warns instead.
    return "ReadWriteOncePod" in claim.modes or (room is not None and room.usable > 1)


def _not_found(message: str, hint: str, field: str) -> NotFound:
    return NotFound(message, hint=hint, findings=(finding("NOT_FOUND", message, hint, field),))


def _check_limit_ranges(cluster: ClusterFacts) -> None:
    findings = [
        finding
        for bound in cluster.bounds
        for ask in cluster.asks
        if (finding := _limit_range_violation(bound, ask))
    ]
    if findings:
        raise _quota_exceeded(findings)


def _limit_range_violation(bound: Bound, ask: Ask) -> Finding | None:
    limit = ask.limits.get(bound.resource, ask.requests.get(bound.resource))
    requested = ask.requests.get(bound.resource)
    if limit is not None and bound.most is not None and limit > bound.most + _EPSILON:
        return _limit_range_finding(bound, ask, limit, bound.most, "at most")
    if requested is not None and bound.least is not None and requested < bound.least - _EPSILON:
        return _limit_range_finding(bound, ask, requested, bound.least, "at least")
    return None


def _limit_range_finding(
    bound: Bound, ask: Ask, requested: float, boundary: float, comparison: str
) -> Finding:
    each = f"each worker of group '{ask.group}'" if ask.group else "each worker"
    subject = "the launcher" if ask.role == "launcher" else each
    message = (
        f"LimitRange '{bound.name}' allows {comparison} {format_amount(bound.resource, boundary)} "
        f"{display_name(bound.resource)} "
        f"for one {bound.scope}, but {subject} requests {format_amount(bound.resource, requested)}"
    )
    field = field_of(bound.resource, ask.role, ask.group)
    hint = (
        f"set {field} to {comparison} {format_amount(bound.resource, boundary)}, or ask an administrator "
        "of the namespace"
    )
    return finding("LIMIT_RANGE", message, hint, field)


def _check_quota_lines(job: MPIJob, facts: Facts, cluster: ClusterFacts) -> None:
    """Raise QuotaExceeded for other quota lines (pods, limits, objects) that would prevent the creation."""
    findings = []
    for line in cluster.ceilings:
        available = line.hard if facts.waits_for_quota and _is_queued(line) else line.free
        if line.wanted > available + _EPSILON:
            findings.append(_quota_finding(line, job, cluster.asks, available))
    if findings:
        raise _quota_exceeded(findings)


def _is_queued(line: Ceiling) -> bool:
    # Kueue holds pods back until quota is free; the job's other objects are created at once.
    return not line.resource.startswith("count/") and line.resource not in (
        "services",
        "secrets",
        "configmaps",
    )


def _quota_finding(line: Ceiling, job: MPIJob, asks: Iterable[Ask], available: float) -> Finding:
    hard, used, additional = (
        format_amount(line.resource, amount) for amount in (line.hard, line.used, line.wanted)
    )
    message = (
        f"ResourceQuota '{line.quota}' allows {hard} {display_name(line.resource)}, {used} are in use, "
        f"and the job adds {additional}"
    )
    fits = _size_within(line.resource, job, asks, available)
    if line.resource.startswith("count/"):
        return finding("QUOTA_EXCEEDED", message, "delete finished jobs, or ask for a larger quota", "")
    return _smaller_size(message, fits, job, ", or ask for a larger quota")


def _size_within(resource: str, job: MPIJob, asks: Iterable[Ask], available: float) -> int:
    """Return how many workers fit into a quota line, together with the launcher."""
    if resource == "pods":
        left = math.floor(available) - 1 - (job.workers - job.resizable.job.workers)
        return whole_size(job, left)
    kind, _, name = resource.partition(".")
    worker, others = _amounts(job, asks, name, limits=kind == "limits")
    return _size(job, worker, others, available) if worker else 0


def _amounts(job: MPIJob, asks: Iterable[Ask], name: str, *, limits: bool = False) -> tuple[float, float]:
    """Return what one of the workers asks for whose number may change, and what all others and the launcher do."""
    worker = others = 0.0
    for ask in asks:
        each = (ask.limits if limits else ask.requests).get(name, 0.0)
        if ask.role == "worker" and ask.group == job.resizable.group:
            worker = each
        else:
            others += each * ask.count
    return worker, others


def _size(job: MPIJob, worker: float, others: float, available: float) -> int:
    fits = workers_that_fit(worker, others, available)
    return whole_size(job, int(fits)) if math.isfinite(fits) else job.workers


def _check_queue(job: MPIJob, queue: QueueFacts, asks: Iterable[Ask]) -> None:
    """Raise QuotaExceeded for requests that exceed the queue's total quota."""
    workers = [ask for ask in asks if ask.role == "worker"]
    findings = []
    for resource in dict.fromkeys(name for ask in workers for name, amount in ask.requests.items() if amount):
        shares = [share for share in queue.shares or () if share.resource == resource]
        if not shares:
            continue
        quota = max(share.most for share in shares)
        for together in _admitted_together(queue, workers, asks):
            requested = sum(ask.requests.get(resource, 0.0) * ask.count for ask in together)
            if requested > quota + _EPSILON:
                worker, others = _amounts(job, together, resource)
                fits = _size(job, worker, others, quota) if worker else 0
                findings.append(_queue_finding(job, queue, resource, requested, quota, fits))
    if findings:
        raise _quota_exceeded(findings)


def _admitted_together(queue: QueueFacts, workers: list[Ask], asks: Iterable[Ask]) -> list[list[Ask]]:
    """Return what shares one flavor of the queue: all of the job, or, with several flavors, maybe no two of it."""
    one = len({share.flavor for share in queue.shares or ()}) == 1
    return [[*asks]] if one else [[ask] for ask in workers]


def _queue_finding(
    job: MPIJob, queue: QueueFacts, resource: str, requested: float, quota: float, fits: int
) -> Finding:
    message = (
        f"Requested {format_amount(resource, requested)} {display_name(resource)}, "
        f"but queue '{queue.name}' gives at most {format_amount(resource, quota)}."
    )
    return _smaller_size(message, fits, job, ", or use another queue")


def _check_nodes(room: NodeCapacity) -> None:
    if room.machines and not room.usable + room.unready:
        message = f"none of the {room.machines} nodes accepts this job's pods: {_format_excluded(room)}"
        hint = "change placement (node_selector, tolerations, exclude_nodes), or ask an administrator of the nodes"
        raise _quota_exceeded([finding("QUOTA_EXCEEDED", message, hint, "placement")])


def check_fragmentation(job: MPIJob, facts: Facts, cluster: ClusterFacts) -> None:
    """Raise QuotaExceeded if the total is sufficient, but the nodes are too small or too few."""
    room = cluster.room
    if room is None or room.grows or room.ever >= job.workers or not room.machines:
        return
    too_large = [
        (ask, name)
        for ask in cluster.asks
        for name, amount in ask.requests.items()
        if ask.role == "worker" and amount > room.largest.get(name, math.inf) + _EPSILON
    ]
    if too_large:
        raise _quota_exceeded([_larger_than_nodes(*too_large[0], room)])
    message = (
        f"{job.workers} workers requested, but the nodes of {facts.place} have capacity for "
        f"at most {room.ever}{'' if job.groups else ' of this size'}"
    )
    raise _quota_exceeded([_smaller_size(message, room.ever, job, _excluded_note(room))])


def _larger_than_nodes(ask: Ask, name: str, room: NodeCapacity) -> Finding:
    field, most = field_of(name, "worker", ask.group), format_amount(name, room.largest[name])
    each = f"each worker of group '{ask.group}'" if ask.group else "each worker"
    message = (
        f"{each} requests {format_amount(name, ask.requests[name])} {display_name(name)}, "
        f"but the largest usable node has {most}"
    )
    return finding("QUOTA_EXCEEDED", message, f"set {field} to at most {most}{_excluded_note(room)}", field)


def _excluded_note(room: NodeCapacity) -> str:
    return f" ({_format_excluded(room)})" if room.passed_over else ""


def _format_excluded(room: NodeCapacity) -> str:
    """Return why nodes are not counted: `2 tainted nvidia.com/gpu, 1 not ready`."""
    return ", ".join(f"{count} {reason}" for reason, count in sorted(room.passed_over.items()))


def _smaller_size(message: str, fits: int, job: MPIJob, rest: str) -> Finding:
    hint = size_hint(job, fits, rest)
    if fits < 1:
        return finding("QUOTA_EXCEEDED", message, hint, "groups" if job.groups else "resources")
    fixes = size_fixes(job, fits, hint)
    return Finding(code="QUOTA_EXCEEDED", message=message, hint=hint, field="workers", fixes=fixes)


def finding(code: str, message: str, hint: str, field: str) -> Finding:
    """Build the finding for a refusal."""
    return Finding(code=code, message=message, hint=hint, field=field)


def _quota_exceeded(findings: list[Finding]) -> QuotaExceeded:
    message = "\n".join(dict.fromkeys(finding.message for finding in findings))
    return QuotaExceeded(message, hint=findings[0].hint, findings=tuple(findings))
