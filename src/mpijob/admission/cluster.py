"""What only a cluster can refuse: limits of its namespaces, its queues, its machines, its claims.

Rights, names and quotas of cores, memory and GPUs are judged in `decision`, for every engine alike; what is
merely told is in `advisories`. Everything here is refused before anything is created.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from mpijob.admission.advisories import missing_image
from mpijob.admission.resources import field_of, named, number
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

_SHARED = {"ReadWriteMany", "ReadOnlyMany"}
_ROUNDING = 1e-9


def refuse(job: MPIJob, facts: Facts, cluster: ClusterFacts) -> None:
    """Raise the first reason for which this cluster would not run the job."""
    _place(cluster)
    _names(job, cluster)
    _image(cluster)
    _limits(cluster)
    _counts(job, facts, cluster)
    if cluster.queue is not None:
        _queue(job, cluster.queue, cluster.asks)
    if cluster.room is not None and not cluster.room.grows:
        _no_machine(cluster.room)


def _place(cluster: ClusterFacts) -> None:
    if not cluster.found:
        message = f"namespace '{cluster.namespace}' does not exist"
        raise NotFound(message, hint="create it, or name another with --namespace")
    if cluster.inline_nfs and cluster.pod_security == "restricted":
        message = (
            f"namespace '{cluster.namespace}' enforces the restricted Pod Security level, "
            "which refuses NFS volumes that are mounted directly"
        )
        hint = "use a volume claim (kind: claim), or a cluster with a CSI driver for NFS"
        raise NotAllowed(message, hint=hint, findings=(finding("POD_SECURITY", message, hint, "volumes"),))


def _names(job: MPIJob, cluster: ClusterFacts) -> None:
    """Refuse what names something that is not there, or that not all pods can have."""
    if cluster.queue is not None and not cluster.queue.found:
        others = cluster.queue.others
        hint = choice_hint(job.queue, others) if others else "this namespace has no queue: leave `queue` out"
        message = f"queue '{cluster.queue.name}' does not exist in namespace '{cluster.namespace}'"
        raise _missing(message, hint, "queue")
    classes = cluster.priority_classes
    if classes is not None and isinstance(job.priority, str) and job.priority not in (*PRIORITIES, *classes):
        words = choice_hint(job.priority, (*PRIORITIES, *classes))
        raise _missing(f"the cluster has no priority class '{job.priority}'", words, "priority")
    for claim in cluster.claims:
        _claim(claim, cluster)


def _image(cluster: ClusterFacts) -> None:
    """Refuse an image that its registry does not have, where the user wants that; one that a machine has may run."""
    answer = cluster.image
    if answer is not None and answer.asked is Asked.MISSING and answer.refuse and not answer.held:
        hint = 'check its name and tag, or push it first; image_check = "warn" in the settings only tells'
        raise _missing(missing_image(cluster), hint, "image")


def _claim(claim: Claim, cluster: ClusterFacts) -> None:
    if not claim.found:
        message = f"volume claim '{claim.name}' does not exist in namespace '{cluster.namespace}'"
        raise _missing(message, "create it first, or correct `source`", "volumes")
    if not claim.modes or _SHARED & set(claim.modes) or not _on_several_machines(claim, cluster.room):
        return
    message = (
        f"volume claim '{claim.name}' is {', '.join(claim.modes)}: only one machine can mount it, "
        "and launcher and workers run on several"
    )
    hint = "use a claim with ReadWriteMany, or bind the job to one machine with placement.node_selector"
    raise InvalidJob.of((finding("CLAIM_NOT_SHARED", message, hint, "volumes"),))


def _on_several_machines(claim: Claim, room: NodeCapacity | None) -> bool:
    """Whether pods that share the claim may land on several machines; nobody knows without seeing them."""
    return "ReadWriteOncePod" in claim.modes or (room is not None and room.usable > 1)


def _missing(message: str, hint: str, field: str) -> NotFound:
    return NotFound(message, hint=hint, findings=(finding("NOT_FOUND", message, hint, field),))


def _limits(cluster: ClusterFacts) -> None:
    found = [one for bound in cluster.bounds for ask in cluster.asks if (one := _outside(bound, ask))]
    if found:
        raise _refusal(found)


def _outside(bound: Bound, ask: Ask) -> Finding | None:
    wanted = ask.limits.get(bound.resource, ask.requests.get(bound.resource))
    asked = ask.requests.get(bound.resource)
    if wanted is not None and bound.most is not None and wanted > bound.most + _ROUNDING:
        return _bounded(bound, ask, wanted, bound.most, "at most")
    if asked is not None and bound.least is not None and asked < bound.least - _ROUNDING:
        return _bounded(bound, ask, asked, bound.least, "at least")
    return None


def _bounded(bound: Bound, ask: Ask, wanted: float, edge: float, words: str) -> Finding:
    subject = "the launcher" if ask.role == "launcher" else "each worker"
    message = (
        f"LimitRange '{bound.name}' allows {words} {number(bound.resource, edge)} {named(bound.resource)} "
        f"for one {bound.scope}, and {subject} asks for {number(bound.resource, wanted)}"
    )
    field = field_of(bound.resource, ask.role)
    hint = f"set {field} to {words} {number(bound.resource, edge)}, or ask who keeps the namespace"
    return finding("LIMIT_RANGE", message, hint, field)


def _counts(job: MPIJob, facts: Facts, cluster: ClusterFacts) -> None:
    """Refuse what a quota's other lines (pods, limits, objects) would not let be created."""
    found = []
    for line in cluster.ceilings:
        room = line.hard if facts.waits_for_quota and _created_later(line) else line.free
        if line.wanted > room + _ROUNDING:
            found.append(_counted(line, job, cluster.asks, room))
    if found:
        raise _refusal(found)


def _created_later(line: Ceiling) -> bool:
    """A queue holds pods back; the job's own objects are created at once."""
    return not line.resource.startswith("count/") and line.resource not in (
        "services",
        "secrets",
        "configmaps",
    )


def _counted(line: Ceiling, job: MPIJob, asks: Iterable[Ask], room: float) -> Finding:
    hard, used, wanted = (number(line.resource, one) for one in (line.hard, line.used, line.wanted))
    message = (
        f"ResourceQuota '{line.quota}' allows {hard} {named(line.resource)}, {used} are in use, "
        f"and the job adds {wanted}"
    )
    fits = _largest(line.resource, asks, room)
    if line.resource.startswith("count/"):
        return finding(
            "QUOTA_EXCEEDED", message, "delete jobs that are finished, or ask for a larger quota", ""
        )
    return _at_most(message, fits, job, " of this size, or ask for a larger quota")


def _largest(resource: str, asks: Iterable[Ask], room: float) -> int:
    """Return how many workers a line has room for, the launcher with them."""
    if resource == "pods":
        return max(0, math.floor(room) - 1)
    form, _, name = resource.partition(".")
    amounts = {ask.role: (ask.limits if form == "limits" else ask.requests).get(name, 0.0) for ask in asks}
    each = amounts.get("worker", 0.0)
    left = room - amounts.get("launcher", 0.0)
    return max(0, math.floor(left / each + _ROUNDING)) if each else 0


def _queue(job: MPIJob, queue: QueueFacts, asks: Iterable[Ask]) -> None:
    """Refuse what the queue could not give even if nothing else ran in it."""
    amounts = {ask.role: ask.requests for ask in asks}
    worker, launcher = amounts.get("worker", {}), amounts.get("launcher", {})
    flavors = {share.flavor for share in queue.shares or ()}
    found = []
    for resource, each in worker.items():
        shares = [share for share in queue.shares or () if share.resource == resource]
        if not shares or not each:
            continue
        beside = launcher.get(resource, 0.0) if len(flavors) == 1 else 0.0
        most = max(share.most for share in shares)
        if each * job.workers + beside > most + _ROUNDING:
            found.append(_beyond_queue(job, queue, resource, each, beside, most))
    if found:
        raise _refusal(found)


def _beyond_queue(
    job: MPIJob, queue: QueueFacts, resource: str, each: float, beside: float, most: float
) -> Finding:
    message = (
        f"Requested {number(resource, each * job.workers + beside)} {named(resource)}, "
        f"but queue '{queue.name}' gives at most {number(resource, most)}."
    )
    fits = max(0, math.floor((most - beside) / each + _ROUNDING))
    return _at_most(message, fits, job, " of this size, or use another queue")


def _no_machine(room: NodeCapacity) -> None:
    if room.machines and not room.usable:
        message = f"none of the {room.machines} machines takes this job's pods: {_left_out(room)}"
        hint = "correct placement (node_selector, tolerations, exclude_nodes), or ask who keeps the machines"
        raise _refusal([finding("QUOTA_EXCEEDED", message, hint, "placement")])


def refuse_pieces(job: MPIJob, facts: Facts, cluster: ClusterFacts) -> None:
    """Raise when there is enough in sum, but no machine is large enough, or too few are."""
    room = cluster.room
    if room is None or room.grows or room.ever >= job.workers or not room.machines:
        return
    worker = next((ask.requests for ask in cluster.asks if ask.role == "worker"), {})
    large = [name for name, amount in worker.items() if amount > room.largest.get(name, math.inf) + _ROUNDING]
    if large:
        name = large[0]
        message = (
            f"each worker asks for {number(name, worker[name])} {named(name)}, "
            f"and the largest machine that it may use has {number(name, room.largest[name])}"
        )
        hint = f"set {field_of(name, 'worker')} to at most {number(name, room.largest[name])}{_aside(room)}"
        raise _refusal([finding("QUOTA_EXCEEDED", message, hint, field_of(name, "worker"))])
    message = (
        f"{job.workers} workers are asked for, and the machines of {facts.place} hold "
        f"at most {room.ever} of this size"
    )
    raise _refusal([_at_most(message, room.ever, job, f" of this size{_aside(room)}")])


def _aside(room: NodeCapacity) -> str:
    return f" ({_left_out(room)})" if room.passed_over else ""


def _left_out(room: NodeCapacity) -> str:
    """Return why machines are not counted: `2 tainted nvidia.com/gpu, 1 not ready`."""
    return ", ".join(f"{count} {reason}" for reason, count in sorted(room.passed_over.items()))


def _at_most(message: str, fits: int, job: MPIJob, words: str) -> Finding:
    if fits < 1:
        size = f"cpu: {job.resources.cpu}, memory: {job.resources.memory}, gpu: {job.resources.gpu}"
        hint = f"not even 1 worker of this size fits: reduce resources (now {size})"
        return finding("QUOTA_EXCEEDED", message, hint, "resources")
    hint = f"use at most {fits} worker{'s' if fits > 1 else ''}{words}"
    fixes = (Fix(hint, {"workers": fits}),)
    return Finding(code="QUOTA_EXCEEDED", message=message, hint=hint, field="workers", fixes=fixes)


def finding(code: str, message: str, hint: str, field: str) -> Finding:
    """Return one reason for a refusal."""
    return Finding(code=code, message=message, hint=hint, field=field)


def _refusal(findings: list[Finding]) -> QuotaExceeded:
    message = "\n".join(dict.fromkeys(one.message for one in findings))
    return QuotaExceeded(message, hint=findings[0].hint, findings=tuple(findings))
