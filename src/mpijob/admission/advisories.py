"""What a cluster's facts make worth knowing, though they refuse nothing: warnings and notices."""

from __future__ import annotations

from collections.abc import Iterator

from mpijob.admission.queue_reason import lacking, starts_now_hint
from mpijob.admission.resources import named
from mpijob.errors import Finding, Severity
from mpijob.model import Facts, MPIJob
from mpijob.model.platform.cluster import Asked, Blocked, ClusterFacts, Flow

_CLOSED = {
    Flow.SSH: "port 2222 (ssh)",
    Flow.DATA: "MPI's data ports",
    Flow.DNS: "port 53 (names)",
}


def remarks(job: MPIJob, facts: Facts) -> tuple[Finding, ...]:
    """Return what is told about a job that this cluster does not refuse."""
    cluster = facts.cluster
    if cluster is None:
        return ()
    found = (
        _network(job, cluster),
        _queue(job, cluster),
        _pieces(job, facts, cluster),
        _growing(job, facts, cluster),
        _claims(cluster),
        _image(cluster),
        _surroundings(cluster),
        _unread(cluster),
    )
    return tuple(one for part in found for one in part)


def _network(job: MPIJob, cluster: ClusterFacts) -> Iterator[Finding]:
    for blocked in cluster.blocked:
        hint = (
            f"allow pods labelled mpijob.dev/job={job.name} to reach each other"
            if blocked.flow is not Flow.DNS
            else "allow UDP and TCP port 53 to the cluster's DNS"
        )
        rest = "; it matters only where the cluster's network enforces policies"
        yield finding("NETWORK_BLOCKED", _blocks(blocked), hint + rest, severity=Severity.WARNING)


def _blocks(blocked: Blocked) -> str:
    names = ", ".join(blocked.policies)
    subject, verb = (
        ("NetworkPolicy", "blocks") if len(blocked.policies) == 1 else ("NetworkPolicies", "block")
    )
    return f"{subject} {names} {verb} {_CLOSED[blocked.flow]} {blocked.direction}"


def _queue(job: MPIJob, cluster: ClusterFacts) -> Iterator[Finding]:
    queue = cluster.queue
    if queue is None:
        read = not any(one.what == "LocalQueues" for one in cluster.unread)
        if job.queue and read:
            message = (
                f"this cluster has no Kueue: queue '{job.queue}' is noted, and the job starts without it"
            )
            yield finding(
                "QUEUE_IGNORED", message, "leave `queue` out", field="queue", severity=Severity.WARNING
            )
        return
    if not queue.active:
        why = f": {queue.reason}" if queue.reason else ""
        message = f"queue '{queue.name}' admits nothing now{why}"
        yield finding(
            "QUEUE_CLOSED", message, "the job waits until an administrator opens it, or use another queue",
            field="queue", severity=Severity.WARNING,
        )  # fmt: skip
    covered = {share.resource for share in queue.shares or ()}
    wanted = {name for ask in cluster.asks for name, amount in ask.requests.items() if amount}
    for name in sorted(wanted - covered) if queue.shares else ():
        message = f"queue '{queue.name}' has no quota for {name}: Kueue does not admit a job that asks for it"
        hint = f"use a queue that gives {named(name)}, or ask who keeps ClusterQueue '{queue.behind}'"
        yield finding("QUEUE_NO_QUOTA", message, hint, field="queue", severity=Severity.WARNING)


def _pieces(job: MPIJob, facts: Facts, cluster: ClusterFacts) -> Iterator[Finding]:
    """Enough in sum is not enough when it lies about in pieces."""
    room = cluster.room
    if room is None or room.now >= job.workers or room.ever < job.workers or any(lacking(job, facts)):
        return
    message = (
        f"{facts.place} has enough free in sum, but in pieces: {room.now} of {job.workers} workers "
        "would find a machine now"
    )
    yield finding("WILL_WAIT", message, starts_now_hint(facts))


def _growing(job: MPIJob, facts: Facts, cluster: ClusterFacts) -> Iterator[Finding]:
    room = cluster.room
    if room is not None and room.grows and room.ever < job.workers:
        message = (
            f"the machines of {facts.place} hold {room.ever} of {job.workers} workers; "
            "the rest waits until machines are added"
        )
        yield finding("WILL_WAIT", message, "nothing: this cluster's pools may grow by themselves")


def _claims(cluster: ClusterFacts) -> Iterator[Finding]:
    """A claim for one machine is refused where there are several; where nobody may see that, it is told."""
    if cluster.room is not None:
        return
    for claim in cluster.claims:
        if claim.modes == ("ReadWriteOnce",):
            message = f"volume claim '{claim.name}' is ReadWriteOnce: pods on other machines cannot mount it"
            hint = "use a claim with ReadWriteMany, or bind the job to one machine"
            yield finding("CLAIM_NOT_SHARED", message, hint, field="volumes", severity=Severity.WARNING)


def _image(cluster: ClusterFacts) -> Iterator[Finding]:
    answer = cluster.image
    if answer is None or answer.asked is Asked.THERE:
        return
    if answer.asked is Asked.UNKNOWN:
        message = f"nobody could say whether the image {answer.image} exists: {answer.why}"
        hint = 'nothing: the job is sent all the same; image_check = "off" in the settings asks no registry'
        yield finding("IMAGE_NOT_CHECKED", message, hint, field="image")
        return
    message = missing_image(cluster)
    hint = "check its name and tag, or push it first; a machine or a mirror that has it still can run the job"
    yield finding("IMAGE_NOT_FOUND", message, hint, field="image", severity=Severity.WARNING)


def missing_image(cluster: ClusterFacts) -> str:
    """Return the sentence about an image that its registry does not have."""
    assert cluster.image is not None
    held = "; a machine of the cluster has it from before" if cluster.image.held else ""
    return f"the registry {cluster.image.why} has no image {cluster.image.image}{held}"


def _surroundings(cluster: ClusterFacts) -> Iterator[Finding]:
    if cluster.mesh:
        message = (
            f"namespace '{cluster.namespace}' is part of a service mesh: the job's pods ask to be left out"
        )
        yield finding("CLUSTER_NOTICE", message, "nothing: MPI does not work through a sidecar")
    if missing := cluster.engines_lack.get("trainer", ()) if not cluster.lacks else ():
        message = f"Kubeflow Trainer is not used, because you lack: {', '.join(missing)}"
        yield finding("CLUSTER_NOTICE", message, "nothing: the MPI Operator runs the job")


def _unread(cluster: ClusterFacts) -> Iterator[Finding]:
    if not cluster.unread:
        return
    parts = "; ".join(f"{one.what} ({one.why}): {one.unknown}" for one in cluster.unread)
    yield finding(
        "NOT_READ",
        f"not checked, because it could not be read: {parts}",
        "nothing: the job is sent all the same, and the cluster decides",
    )


def finding(
    code: str, message: str, hint: str, *, field: str = "", severity: Severity = Severity.NOTICE
) -> Finding:
    """Return one thing that is told."""
    return Finding(code=code, message=message, hint=hint, field=field, severity=severity)
