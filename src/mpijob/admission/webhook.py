"""What a cluster refuses or warns of when a job reaches its API server, whoever wrote it and by whatever means.

The same sentences as before submitting (`decision`), and those that only hold there: limits that an administrator set
for the namespace, whose job it is, what its pods would be given. With `enforcement: Warn` limits only warn;
what touches other users is refused all the same.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator

import msgspec

from mpijob.admission.decision import admit
from mpijob.admission.queue_reason import too_many_jobs
from mpijob.errors import Finding, Fix, MpiJobError, Severity
from mpijob.model import Amounts, Facts, Identity, MPIJob, Quota
from mpijob.model.platform.admission_request import MOST_ACCOUNTS, MOST_SECRETS, Around, Incoming, Verdict
from mpijob.model.platform.cluster import ClusterFacts
from mpijob.model.platform.governance import Enforcement, NamespaceLimits, RetirementStage
from mpijob.model.spec import network

_MOST_WORKERS = 100
_CREATE = "CREATE"
_QUEUE_LABEL = "the label kueue.x-k8s.io/queue-name"


def judge(asked: Incoming, around: Around, *, strict: bool = False) -> Verdict:
    """Return what is refused and what is warned of; where it is `strict`, a job that could only fail is refused."""
    limited = [*_limits(asked, around)]
    limited += _quota(asked, around) if asked.operation == _CREATE else ()
    old = _old(asked, around.limits)
    limited += [one for one in old if one.severity is Severity.ERROR]
    if asked.scaled and asked.job is not None:
        limited += [*_workers(asked.job, around.limits), *_gpus(asked, around.limits)]
    firm = [*_identity(asked), *_others(asked, around), *_privileges(asked), *_unchanged(asked)]
    soft = around.limits.enforcement is Enforcement.WARN
    fatal = [one for one in asked.traps if strict and one.severity is Severity.ERROR]
    traps = [one for one in asked.traps if one.severity is not Severity.NOTICE and one not in fatal]
    leaving = [one for one in old if one.severity is Severity.WARNING]
    warned = [*(limited if soft else ()), *leaving, *traps, *_small(asked)]
    return Verdict((*firm, *fatal, *(() if soft else limited)), tuple(warned))


def sentence(finding: Finding) -> str:
    """Return a finding as one line: what, and what to do."""
    text = str(finding).replace("\n", " ")
    return f"{text} ({finding.hint})" if finding.hint else text


# -- the namespace's limits --------------------------------------------------------------------------
def _limits(asked: Incoming, around: Around) -> Iterator[Finding]:
    limits = around.limits
    yield from _images(asked, limits)
    yield from _classes(asked, limits)
    job = asked.job
    if asked.operation == _CREATE:
        yield from _unreadable(asked, limits)
        if job is not None:
            yield from _workers(job, limits)
            yield from _gpus(asked, limits)
            yield from _duration(asked, limits)
            yield from _queue(asked, limits)
            yield from _count(asked, around)
            yield from _egress(asked, limits)
    elif job is not None or asked.unreadable:
        yield from _duration(asked, limits) if "deadline_seconds" in asked.rewritten else ()
        yield from _queue(asked, limits) if "queue" in asked.rewritten else ()


def _old(asked: Incoming, limits: NamespaceLimits) -> list[Finding]:
    """Return what is said to an MPIJob that mpijob did not make; one that is only announced is left in peace."""
    if asked.operation != _CREATE or asked.kind != "MPIJob" or asked.uid:
        return []
    found = retiring(asked.namespace, limits)
    return [found] if found is not None and found.severity is not Severity.NOTICE else []


def retiring(namespace: str, limits: NamespaceLimits) -> Finding | None:
    """Return how MPIJobs that mpijob did not make fare in a namespace; None where nothing is planned for them."""
    plan = limits.old_jobs
    if plan is None:
        return None
    whose = "MPIJobs that mpijob did not make are"
    where = "every other namespace" if namespace == "*" else f"namespace '{namespace}'"
    until = f" after {plan.until}" if plan.until else " soon"
    message, severity = {
        RetirementStage.ANNOUNCE: (
            f"{whose} to be refused in {where}{until}",
            Severity.NOTICE,
        ),
        RetirementStage.WARN: (f"{whose} refused in {where}{until}", Severity.WARNING),
        RetirementStage.REFUSE: (f"{whose} no longer taken in {where}", Severity.ERROR),
    }[plan.stage]
    hint = "mpijob convert FILE makes a job of one, and tells what becomes of every field"
    return Finding("NOT_ALLOWED", message, hint, "", severity)


def _workers(job: MPIJob, limits: NamespaceLimits) -> Iterator[Finding]:
    most = limits.max_workers or _MOST_WORKERS
    if not 1 <= job.workers <= most:
        message = f"{job.workers} workers are asked for, and namespace '{job.namespace}' allows 1 to {most}"
        yield _limit(message, f"use at most {most} workers", "workers", {"workers": most})


def _unreadable(asked: Incoming, limits: NamespaceLimits) -> Iterator[Finding]:
    """Refuse what cannot be read where numbers limit: what cannot be counted would be let in."""
    numbers = (limits.max_workers, limits.max_gpus, limits.concurrent_jobs, limits.max_duration_seconds)
    if asked.unreadable and (limits.queue or any(one is not None for one in numbers)):
        message = (
            f"{asked.kind} '{asked.name}' cannot be held against the limits of namespace '{asked.namespace}'"
        )
        hint = "write amounts as 2, 500m or 4Gi, and Launcher and Worker with a container each"
        yield _limit(f"{message}: {asked.unreadable}", hint, "", {})


def _gpus(asked: Incoming, limits: NamespaceLimits) -> Iterator[Finding]:
    wanted = asked.gpus
    if limits.max_gpus is not None and wanted > limits.max_gpus:
        fits = limits.max_gpus // asked.worker_gpus if asked.worker_gpus else 0
        message = f"Requested {wanted} GPUs, but project quota is {limits.max_gpus}. Contact admin or reduce workers."
        hint = f"use at most {fits} workers of this size" if fits else "ask for fewer GPUs"
        yield _limit(message, hint, "resources.gpu", {"workers": fits} if fits else {})


def _duration(asked: Incoming, limits: NamespaceLimits) -> Iterator[Finding]:
    most, wanted = limits.max_duration_seconds, asked.deadline_seconds
    if most is None or (wanted is None and asked.operation == _CREATE):  # it gets the longest one
        return
    if wanted is None or wanted > most:
        whole = "the job may run as long as it likes" if wanted is None else f"the job may run {wanted:g} s"
        message = f"{whole}, and namespace '{asked.namespace}' allows {most:g} s"
        hint = f"set deadline_seconds to at most {most:g}"
        yield _limit(message, hint, "deadline_seconds", {"deadline_seconds": most})


def _queue(asked: Incoming, limits: NamespaceLimits) -> Iterator[Finding]:
    if not limits.queue or asked.queue == limits.queue or (not asked.queue and asked.operation == _CREATE):
        return
    named = f"queue '{asked.queue}' is named" if asked.queue else "no queue is named"
    message = f"{named}, and jobs of namespace '{asked.namespace}' go to '{limits.queue}'"
    hint = "leave `queue` out, or name that one" if asked.queue else f"name that one: {_QUEUE_LABEL}"
    yield _limit(message, hint, "queue", {"queue": limits.queue})


def _count(asked: Incoming, around: Around) -> Iterator[Finding]:
    most = around.limits.concurrent_jobs
    if most is None or around.jobs_running < most:
        return
    said = too_many_jobs(Quota(asked.namespace, jobs=most, jobs_running=around.jobs_running))
    link = around.limits.quota_request_url
    hint = "wait for a running job to end, or delete one"
    yield _limit(said, f"{hint}; request more at {link}" if link else hint, "", {})


def _egress(asked: Incoming, limits: NamespaceLimits) -> Iterator[Finding]:
    if not limits.allowed_egress:
        return  # nothing is opened for who may not open it; who may needs no leave
    for one in asked.egress:
        if not network.covered(one, limits.allowed_egress, asked.namespace):
            message = (
                f"the job's pods want to reach {one}, which namespace '{asked.namespace}' does not allow"
            )
            yield _limit(message, f"allowed: {', '.join(limits.allowed_egress)}", "network.egress", {})


def _images(asked: Incoming, limits: NamespaceLimits) -> Iterator[Finding]:
    if not limits.allowed_images:
        return
    for image in asked.images:
        if not any(_covers(pattern, image) for pattern in limits.allowed_images):
            message = f"image '{image}' is not among those that namespace '{asked.namespace}' allows"
            yield _limit(message, f"allowed: {', '.join(limits.allowed_images)}", "image", {})


def _covers(pattern: str, image: str) -> bool:
    """A pattern with a star is one for the whole name; without, it is a name, or the folder that images are in."""
    if "*" in pattern:
        return fnmatch.fnmatchcase(image, pattern)
    return image == pattern or image.startswith((pattern.rstrip("/") + "/", f"{pattern}:", f"{pattern}@"))


def _classes(asked: Incoming, limits: NamespaceLimits) -> Iterator[Finding]:
    allowed = limits.priority_classes
    for name in sorted({*asked.classes} - {*allowed}) if allowed else ():
        message = f"priority class '{name}' is not among those that namespace '{asked.namespace}' allows"
        yield _limit(message, f"allowed: {', '.join(allowed)}", "priority", {})


def _limit(message: str, hint: str, field: str, patch: dict[str, object]) -> Finding:
    fixes = (Fix(hint, patch),) if patch else ()
    return Finding(code="QUOTA_EXCEEDED", message=message, hint=hint, field=field, fixes=fixes)


def _quota(asked: Incoming, around: Around) -> Iterator[Finding]:
    """Yield what the client would have refused before submitting, in the very same words."""
    job = asked.job
    if job is None:
        return
    facts = Facts(
        place="this cluster",
        capacity=Amounts(),
        free=Amounts(),
        room_known=False,
        waits_for_quota=bool(asked.queue or around.limits.queue),
        quota=around.quota,
        max_workers=max(job.workers, 1),
        cluster=ClusterFacts(
            namespace=job.namespace, asks=around.asks, ceilings=around.ceilings, bounds=around.bounds
        ),
    )
    try:
        admit(job, Identity(asked.user), facts)
    except MpiJobError as error:
        told = error.findings or (Finding(code=error.code, message=error.message, hint=error.hint),)
        yield from (msgspec.structs.replace(one, field="") for one in told)


# -- what touches others -----------------------------------------------------------------------------
def _identity(asked: Incoming) -> Iterator[Finding]:
    """Refuse what says that a job is somebody else's, another job, or something else than its own fields tell."""
    if asked.operation == _CREATE and not asked.uid_is_own:
        message = f"the label mpijob.dev/uid={asked.uid} was not issued for user '{asked.user}' in '{asked.namespace}'"
        hint = "leave the label out, or create the job with mpijob of this release or newer"
        yield _refused(message, hint, "metadata.labels")
    if asked.operation == _CREATE and asked.owner != asked.user:
        message = f"the owner is '{asked.owner}', and user '{asked.user}' creates the {asked.kind}"
        yield _refused(message, "leave label and annotation mpijob.dev/owner out", "metadata.annotations")
    if asked.operation == _CREATE and asked.uid and asked.unreadable:
        message = (
            f"{asked.kind} '{asked.name}' cannot be read as the job that it says it is: {asked.unreadable}"
        )
        yield _refused(
            message, "create it with mpijob, or leave the labels mpijob.dev/… out", "metadata.labels"
        )
    for field in asked.contradictions:
        message = f"the annotation mpijob.dev/rest contradicts the {asked.kind}: {field}"
        hint = "leave the field out of the annotation: the job's own fields tell it"
        yield _refused(message, hint, "metadata.annotations")
    for field in asked.reidentified:
        message = f"{field} of {asked.kind} '{asked.name}' cannot be added, changed or removed"
        yield _refused(message, "leave it as it was when the job was created", field)


def _others(asked: Incoming, around: Around) -> Iterator[Finding]:
    for pod in asked.pods:
        yield from _foreign_labels(asked, pod.labels, pod.part)
    if len(asked.secrets) > MOST_SECRETS:
        message = f"{len(asked.secrets)} Secrets are given to pods, and {MOST_SECRETS} is the most that is looked at"
        yield _refused(message, "put what is needed into fewer Secrets", "secrets")
    for name in around.unreadable_secrets:
        message = f"User '{asked.user}' may not read Secret '{name}', and the job would give it to its pods"
        yield _refused(
            message, f"ask for 'get' on Secret '{name}' in '{asked.namespace}', or leave it out", "secrets"
        )
    if len(asked.config_maps) > MOST_SECRETS:
        message = f"{len(asked.config_maps)} ConfigMaps are given to pods, and {MOST_SECRETS} is the most"
        yield _refused(message, "put what is needed into fewer ConfigMaps", "volumes")
    for name in around.unreadable_config_maps:
        message = (
            f"User '{asked.user}' may not read ConfigMap '{name}', and the job would give it to its pods"
        )
        hint = f"ask for 'get' on ConfigMap '{name}' in '{asked.namespace}', or leave it out"
        yield _refused(message, hint, "volumes")
    accounts = {name for pod in asked.pods for name in pod.accounts}
    if len(accounts) > MOST_ACCOUNTS:
        message = (
            f"pods act as {len(accounts)} service accounts, and {MOST_ACCOUNTS} is the most that is looked at"
        )
        yield _refused(message, "use fewer service accounts", "serviceAccountName")
    for name in around.forbidden_accounts:
        message = f"User '{asked.user}' may not act as service account '{name}', and the job's pods would"
        hint = "leave serviceAccountName out, or set automountServiceAccountToken: false"
        yield _refused(message, hint, "serviceAccountName")


def _foreign_labels(asked: Incoming, labels: object, part: str) -> Iterator[Finding]:
    theirs = labels.get("mpijob.dev/uid", "") if isinstance(labels, dict) else ""
    if theirs and theirs != asked.uid:
        message = f"pods are labelled mpijob.dev/uid={theirs}, which is not the uid of this {asked.kind}"
        yield _refused(message, "leave the label out: it lets pods into another job's network", part)


def _privileges(asked: Incoming) -> Iterator[Finding]:
    for pod in asked.pods:
        for words in pod.privileges:
            message = f"{pod.part} asks for {words}, which jobs do not get here"
            yield _refused(message, "leave it out, or ask for a namespace that is not governed", pod.part)


def _unchanged(asked: Incoming) -> Iterator[Finding]:
    for field in asked.changed:
        message = f"{field} of {asked.kind} '{asked.name}' cannot be changed: a job is what it was when it was created"
        hint = "clone it with the change (mpijob clone), or delete it and create it anew"
        yield Finding(code="CONFLICT", message=message, hint=hint, field=field)


def _small(asked: Incoming) -> Iterator[Finding]:
    if asked.operation == _CREATE and asked.job is not None and asked.job.workers == 1:
        message = "one worker is asked for: nothing runs on several machines"
        yield Finding("BAD_WORKERS", message, "use 2 workers or more", "workers", Severity.WARNING)


def _refused(message: str, hint: str, field: str) -> Finding:
    return Finding(code="NOT_ALLOWED", message=message, hint=hint, field=field)
