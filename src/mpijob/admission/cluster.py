"""Reasons for which only a cluster refuses a job: limits of its namespaces, its queues, nodes and claims.

Permissions, names, and quotas of cores, memory and GPUs are checked in `decision` for all engines; warnings
and notices are in `advisories`. Everything here is refused before any object is created.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from mpijob.admission.advisories import missing_image
from mpijob.admission.resources import display_name, field_of, format_amount
from mpijob.errors import Finding, Fix, InvalidJob, NotAllowed, NotFound, QuotaExceeded
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
    subject = "the launcher" if ask.role == "launcher" else "each worker"
    message = (
        f"LimitRange '{bound.name}' allows {comparison} {format_amount(bound.resource, boundary)} "
        f"{display_name(bound.resource)} "
        f"for one {bound.scope}, but {subject} requests {format_amount(bound.resource, requested)}"
    )
    field = field_of(bound.resource, ask.role)
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
    fits = _workers_that_fit(line.resource, asks, available)
    if line.resource.startswith("count/"):
        return finding("QUOTA_EXCEEDED", message, "delete finished jobs, or ask for a larger quota", "")
    return _smaller_size(message, fits, job, " of this size, or ask for a larger quota")


def _workers_that_fit(resource: str, asks: Iterable[Ask], available: float) -> int:
    """Return how many workers fit into a quota line, together with the launcher."""
    if resource == "pods":
        return max(0, math.floor(available) - 1)
    kind, _, name = resource.partition(".")
    amounts = {ask.role: (ask.limits if kind == "limits" else ask.requests).get(name, 0.0) for ask in asks}
    per_worker = amounts.get("worker", 0.0)
    remaining = available - amounts.get("launcher", 0.0)
    return max(0, math.floor(remaining / per_worker + _EPSILON)) if per_worker else 0


def _check_queue(job: MPIJob, queue: QueueFacts, asks: Iterable[Ask]) -> None:
    """Raise QuotaExceeded for requests that exceed the queue's total quota."""
    amounts = {ask.role: ask.requests for ask in asks}
    worker, launcher = amounts.get("worker", {}), amounts.get("launcher", {})
    flavors = {share.flavor for share in queue.shares or ()}
    findings = []
    for resource, per_worker in worker.items():
        shares = [share for share in queue.shares or () if share.resource == resource]
        if not shares or not per_worker:
            continue
        # With several flavors the launcher may get another one than the workers.
        launcher_share = launcher.get(resource, 0.0) if len(flavors) == 1 else 0.0
        quota = max(share.most for share in shares)
        if per_worker * job.workers + launcher_share > quota + _EPSILON:
            findings.append(_queue_finding(job, queue, resource, per_worker, launcher_share, quota))
    if findings:
        raise _quota_exceeded(findings)


def _queue_finding(
    job: MPIJob, queue: QueueFacts, resource: str, per_worker: float, launcher_share: float, quota: float
) -> Finding:
    message = (
        f"Requested {format_amount(resource, per_worker * job.workers + launcher_share)} {display_name(resource)}, "
        f"but queue '{queue.name}' gives at most {format_amount(resource, quota)}."
    )
    fits = max(0, math.floor((quota - launcher_share) / per_worker + _EPSILON))
    return _smaller_size(message, fits, job, " of this size, or use another queue")


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
    worker = next((ask.requests for ask in cluster.asks if ask.role == "worker"), {})
    too_large = [
        name for name, amount in worker.items() if amount > room.largest.get(name, math.inf) + _EPSILON
    ]
    if too_large:
        name = too_large[0]
        message = (
            f"each worker requests {format_amount(name, worker[name])} {display_name(name)}, "
            f"but the largest usable node has {format_amount(name, room.largest[name])}"
        )
        hint = (
            f"set {field_of(name, 'worker')} to at most "
            f"{format_amount(name, room.largest[name])}{_excluded_note(room)}"
        )
        raise _quota_exceeded([finding("QUOTA_EXCEEDED", message, hint, field_of(name, "worker"))])
    message = (
        f"{job.workers} workers requested, but the nodes of {facts.place} have capacity for "
        f"at most {room.ever} of this size"
    )
    raise _quota_exceeded([_smaller_size(message, room.ever, job, f" of this size{_excluded_note(room)}")])


def _excluded_note(room: NodeCapacity) -> str:
    return f" ({_format_excluded(room)})" if room.passed_over else ""


def _format_excluded(room: NodeCapacity) -> str:
    """Return why nodes are not counted: `2 tainted nvidia.com/gpu, 1 not ready`."""
    return ", ".join(f"{count} {reason}" for reason, count in sorted(room.passed_over.items()))


def _smaller_size(message: str, fits: int, job: MPIJob, suffix: str) -> Finding:
    if fits < 1:
        size = f"cpu: {job.resources.cpu}, memory: {job.resources.memory}, gpu: {job.resources.gpu}"
        hint = f"not even 1 worker of this size fits: reduce resources (currently {size})"
        return finding("QUOTA_EXCEEDED", message, hint, "resources")
    hint = f"use at most {fits} worker{'s' if fits > 1 else ''}{suffix}"
    fixes = (Fix(hint, {"workers": fits}),)
    return Finding(code="QUOTA_EXCEEDED", message=message, hint=hint, field="workers", fixes=fixes)


def finding(code: str, message: str, hint: str, field: str) -> Finding:
    """Build the finding for a refusal."""
    return Finding(code=code, message=message, hint=hint, field=field)


def _quota_exceeded(findings: list[Finding]) -> QuotaExceeded:
    message = "\n".join(dict.fromkeys(finding.message for finding in findings))
    return QuotaExceeded(message, hint=findings[0].hint, findings=tuple(findings))
