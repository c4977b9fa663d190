"""Warnings and notices from a cluster's facts that do not refuse a job."""

from __future__ import annotations

from collections.abc import Iterator

from mpijob.admission.queue_reason import missing_resources, starts_now_hint
from mpijob.admission.resources import display_name
from mpijob.errors import Finding, Severity
from mpijob.model import Facts, MPIJob
from mpijob.model.platform.cluster import Asked, Blocked, ClusterFacts, Flow

_FLOW_NAMES = {
    Flow.SSH: "port 2222 (ssh)",
    Flow.DATA: "MPI's data ports",
    Flow.DNS: "port 53 (names)",
}


def advisories(job: MPIJob, facts: Facts) -> tuple[Finding, ...]:
    """Return warnings and notices for a job that this cluster accepts."""
    cluster = facts.cluster
    if cluster is None:
        return ()
    parts = (
        _network(job, cluster),
        _queue(job, cluster),
        _fragmented(job, facts, cluster),
        _waits_for_nodes(job, facts, cluster),
        _claims(cluster),
        _image(cluster),
        _namespace_notices(cluster),
        _unread(cluster),
    )
    return tuple(finding for part in parts for finding in part)


def _network(job: MPIJob, cluster: ClusterFacts) -> Iterator[Finding]:
    for blocked in cluster.blocked:
        hint = (
            f"allow pods labelled mpijob.dev/job={job.name} to reach each other"
            if blocked.flow is not Flow.DNS
            else "allow UDP and TCP port 53 to the cluster's DNS"
        )
        limitation = "; it has an effect only if the cluster's network enforces policies"
        yield finding("NETWORK_BLOCKED", _blocks(blocked), hint + limitation, severity=Severity.WARNING)


def _blocks(blocked: Blocked) -> str:
    names = ", ".join(blocked.policies)
    subject, verb = (
        ("NetworkPolicy", "blocks") if len(blocked.policies) == 1 else ("NetworkPolicies", "block")
    )
    return f"{subject} {names} {verb} {_FLOW_NAMES[blocked.flow]} {blocked.direction}"


def _queue(job: MPIJob, cluster: ClusterFacts) -> Iterator[Finding]:
    queue = cluster.queue
    if queue is None:
        queues_readable = not any(unread.what == "LocalQueues" for unread in cluster.unread)
        if job.queue and queues_readable:
            message = f"Kueue is not installed in this cluster: queue '{job.queue}' is ignored"
            yield finding(
                "QUEUE_IGNORED",
                message,
                "remove `queue` from the job",
                field="queue",
                severity=Severity.WARNING,
            )
        return
    if not queue.active:
        reason = f": {queue.reason}" if queue.reason else ""
        message = f"queue '{queue.name}' is not active{reason}"
        yield finding(
            "QUEUE_CLOSED", message, "the job waits until an administrator activates it, or use another queue",
            field="queue", severity=Severity.WARNING,
        )  # fmt: skip
    covered = {share.resource for share in queue.shares or ()}
    requested = {name for ask in cluster.asks for name, amount in ask.requests.items() if amount}
    for name in sorted(requested - covered) if queue.shares else ():
        message = f"queue '{queue.name}' has no quota for {name}: Kueue does not admit a job that requests it"
        hint = (
            f"use a queue with quota for {display_name(name)}, or ask the administrator of ClusterQueue "
            f"'{queue.behind}'"
        )
        yield finding("QUEUE_NO_QUOTA", message, hint, field="queue", severity=Severity.WARNING)


def _fragmented(job: MPIJob, facts: Facts, cluster: ClusterFacts) -> Iterator[Finding]:
    # Enough in total is not enough when it is fragmented over the nodes.
    room = cluster.room
    if (
        room is None
        or room.unready
        or room.now >= job.workers
        or room.ever < job.workers
        or any(missing_resources(job, facts))
    ):
        return
    message = (
        f"{facts.place} has enough free resources in total, but fragmented: {room.now} of {job.workers} workers "
        "fit on its nodes now"
    )
    yield finding("WILL_WAIT", message, starts_now_hint(job, facts))


def _waits_for_nodes(job: MPIJob, facts: Facts, cluster: ClusterFacts) -> Iterator[Finding]:
    room = cluster.room
    if room is not None and room.unready and room.now < job.workers <= room.ever:
        are = "node is" if room.unready == 1 else "nodes are"
        message = f"{room.unready} {are} not ready; {room.now} of {job.workers} workers fit on the others now"
        yield finding(
            "WILL_WAIT", message, "the job starts when the nodes are ready, or ask their administrator"
        )
    if room is not None and room.grows and room.ever < job.workers:
        message = (
            f"the nodes of {facts.place} have capacity for {room.ever} of {job.workers} workers; "
            "the others wait until nodes are added"
        )
        yield finding("WILL_WAIT", message, "no action needed: the cluster may add nodes automatically")


def _claims(cluster: ClusterFacts) -> Iterator[Finding]:
    # `check_cluster` rejects the job if its pods would run on several nodes; without a right to read nodes
    # this is only a warning.
    if cluster.room is not None:
        return
    for claim in cluster.claims:
        if claim.modes == ("ReadWriteOnce",):
            message = f"volume claim '{claim.name}' is ReadWriteOnce: pods on other nodes cannot mount it"
            hint = "use a claim with ReadWriteMany, or restrict the job to one node"
            yield finding("CLAIM_NOT_SHARED", message, hint, field="volumes", severity=Severity.WARNING)


def _image(cluster: ClusterFacts) -> Iterator[Finding]:
    answer = cluster.image
    if answer is None or answer.asked is Asked.THERE:
        return
    if answer.asked is Asked.UNKNOWN:
        message = f"could not check whether image {answer.image} exists: {answer.why}"
        hint = 'no action needed: the job is submitted anyway; image_check = "off" in the settings skips the check'
        yield finding("IMAGE_NOT_CHECKED", message, hint, field="image")
        return
    message = missing_image(cluster)
    hint = "check name and tag, or push the image; nodes and mirrors that have it can still run the job"
    yield finding("IMAGE_NOT_FOUND", message, hint, field="image", severity=Severity.WARNING)


def missing_image(cluster: ClusterFacts) -> str:
    """Return the message for an image that its registry does not have."""
    assert cluster.image is not None
    cached = "; a node of the cluster has it cached" if cluster.image.held else ""
    return f"registry {cluster.image.why} has no image {cluster.image.image}{cached}"


def _namespace_notices(cluster: ClusterFacts) -> Iterator[Finding]:
    if cluster.mesh:
        message = (
            f"namespace '{cluster.namespace}' uses a service mesh: its sidecar is disabled for the job's pods"
        )
        yield finding("CLUSTER_NOTICE", message, "no action needed: MPI does not work through a sidecar")
    if missing := cluster.engines_lack.get("trainer", ()) if not cluster.lacks else ():
        message = f"Kubeflow Trainer is not used: missing permissions: {', '.join(missing)}"
        yield finding("CLUSTER_NOTICE", message, "no action needed: the MPI Operator runs the job")


def _unread(cluster: ClusterFacts) -> Iterator[Finding]:
    if not cluster.unread:
        return
    parts = "; ".join(f"{unread.what} ({unread.why}): {unread.unknown}" for unread in cluster.unread)
    yield finding(
        "NOT_READ",
        f"not checked, because it could not be read: {parts}",
        "no action needed: the job is submitted anyway, and the cluster decides",
    )


def finding(
    code: str, message: str, hint: str, *, field: str = "", severity: Severity = Severity.NOTICE
) -> Finding:
    """Build one finding."""
    return Finding(code=code, message=message, hint=hint, field=field, severity=severity)
