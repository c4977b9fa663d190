"""What a cluster refuses or warns about when a job is created or changed through its API server, by any client.

The same messages as before submission (`decision`), and those that apply only here: the administrator's limits for
the namespace, the job's owner, privileges of its pods. With `enforcement: Warn` limits only cause warnings; what
affects other users is always refused.
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

_MAX_WORKERS = 100
_CREATE = "CREATE"
_QUEUE_LABEL = "the label kueue.x-k8s.io/queue-name"


def review(request: Incoming, around: Around, *, strict: bool = False) -> Verdict:
    """Return refusals and warnings; with `strict`, a job that is certain to fail is refused."""
    over_limits = [*_limit_findings(request, around)]
    over_limits += _check_quota(request, around) if request.operation == _CREATE else ()
    planned = _retirement_finding(request, around.limits)
    over_limits += [finding for finding in planned if finding.severity is Severity.ERROR]
    if request.scaled and request.job is not None:
        over_limits += [*_check_workers(request.job, around.limits), *_check_gpus(request, around.limits)]
    always = [
        *_check_identity(request),
        *_check_other_users(request, around),
        *_check_privileges(request),
        *_check_immutable(request),
    ]
    only_warns = around.limits.enforcement is Enforcement.WARN
    fatal_traps = [finding for finding in request.traps if strict and finding.severity is Severity.ERROR]
    traps = [
        finding
        for finding in request.traps
        if finding.severity is not Severity.NOTICE and finding not in fatal_traps
    ]
    retirement_warnings = [finding for finding in planned if finding.severity is Severity.WARNING]
    warnings = [
        *(over_limits if only_warns else ()),
        *retirement_warnings,
        *traps,
        *_single_worker_warning(request),
    ]
    return Verdict((*always, *fatal_traps, *(() if only_warns else over_limits)), tuple(warnings))


def format_finding(finding: Finding) -> str:
    """Format a finding as one line, with its hint."""
    text = str(finding).replace("\n", " ")
    return f"{text} ({finding.hint})" if finding.hint else text


# -- the namespace's limits --------------------------------------------------------------------------
def _limit_findings(request: Incoming, around: Around) -> Iterator[Finding]:
    limits = around.limits
    yield from _check_images(request, limits)
    yield from _check_priority_classes(request, limits)
    job = request.job
    if request.operation == _CREATE:
        yield from _check_parsable(request, limits)
        if job is not None:
            yield from _check_workers(job, limits)
            yield from _check_gpus(request, limits)
            yield from _check_duration(request, limits)
            yield from _check_queue(request, limits)
            yield from _check_concurrent_jobs(request, around)
            yield from _check_egress(request, limits)
    elif job is not None or request.unreadable:
        yield from _check_duration(request, limits) if "deadline_seconds" in request.rewritten else ()
        yield from _check_queue(request, limits) if "queue" in request.rewritten else ()


def _retirement_finding(request: Incoming, limits: NamespaceLimits) -> list[Finding]:
    """Return the finding for an MPIJob that mpijob did not create."""
    if request.operation != _CREATE or request.kind != "MPIJob" or request.uid:
        return []
    finding = retirement(request.namespace, limits)
    return [finding] if finding is not None and finding.severity is not Severity.NOTICE else []


def retirement(namespace: str, limits: NamespaceLimits) -> Finding | None:
    """Return the retirement finding for MPIJobs not created by mpijob; None if nothing is planned."""
    plan = limits.old_jobs
    if plan is None:
        return None
    subject = "MPIJobs not created by mpijob"
    where = "every other namespace" if namespace == "*" else f"namespace '{namespace}'"
    until = f" after {plan.until}" if plan.until else " soon"
    message, severity = {
        RetirementStage.ANNOUNCE: (
            f"{subject} will be refused in {where}{until}",
            Severity.NOTICE,
        ),
        RetirementStage.WARN: (f"{subject} will be refused in {where}{until}", Severity.WARNING),
        RetirementStage.REFUSE: (f"{subject} are no longer accepted in {where}", Severity.ERROR),
    }[plan.stage]
    hint = "mpijob convert FILE converts it to a job and reports on every field"
    return Finding("NOT_ALLOWED", message, hint, "", severity)


def _check_workers(job: MPIJob, limits: NamespaceLimits) -> Iterator[Finding]:
    max_workers = limits.max_workers or _MAX_WORKERS
    if not 1 <= job.workers <= max_workers:
        message = (
            f"{job.workers} workers requested, but namespace '{job.namespace}' allows 1 to {max_workers}"
        )
        yield _limit(message, f"use at most {max_workers} workers", "workers", {"workers": max_workers})


def _check_parsable(request: Incoming, limits: NamespaceLimits) -> Iterator[Finding]:
    """Refuse what cannot be parsed where there are limits: what cannot be counted would bypass them."""
    numbers = (limits.max_workers, limits.max_gpus, limits.concurrent_jobs, limits.max_duration_seconds)
    if request.unreadable and (limits.queue or any(number is not None for number in numbers)):
        message = (
            f"{request.kind} '{request.name}' cannot be checked against the limits of namespace "
            f"'{request.namespace}'"
        )
        hint = "write quantities as 2, 500m or 4Gi, with one container each in Launcher and Worker"
        yield _limit(f"{message}: {request.unreadable}", hint, "", {})


def _check_gpus(request: Incoming, limits: NamespaceLimits) -> Iterator[Finding]:
    requested = request.gpus
    if limits.max_gpus is not None and requested > limits.max_gpus:
        alike = request.worker_gpus and (request.job is None or not request.job.groups)
        max_workers = limits.max_gpus // request.worker_gpus if alike else 0
        message = (
            f"Requested {requested} GPUs, but project quota is {limits.max_gpus}. Contact admin or reduce "
            "workers."
        )
        hint = f"use at most {max_workers} workers of this size" if max_workers else "ask for fewer GPUs"
        yield _limit(message, hint, "resources.gpu", {"workers": max_workers} if max_workers else {})


def _check_duration(request: Incoming, limits: NamespaceLimits) -> Iterator[Finding]:
    max_seconds, requested = limits.max_duration_seconds, request.deadline_seconds
    # A new job without a deadline gets the longest one allowed.
    if max_seconds is None or (requested is None and request.operation == _CREATE):
        return
    if requested is None or requested > max_seconds:
        duration = "the job has no deadline" if requested is None else f"the job may run {requested:g} s"
        message = f"{duration}, but namespace '{request.namespace}' allows {max_seconds:g} s"
        hint = f"set deadline_seconds to at most {max_seconds:g}"
        yield _limit(message, hint, "deadline_seconds", {"deadline_seconds": max_seconds})


def _check_queue(request: Incoming, limits: NamespaceLimits) -> Iterator[Finding]:
    if (
        not limits.queue
        or request.queue == limits.queue
        or (not request.queue and request.operation == _CREATE)
    ):
        return
    current = f"queue '{request.queue}' is set" if request.queue else "no queue is set"
    message = f"{current}, but jobs of namespace '{request.namespace}' must use '{limits.queue}'"
    hint = "remove `queue`, or set that one" if request.queue else f"set that one: {_QUEUE_LABEL}"
    yield _limit(message, hint, "queue", {"queue": limits.queue})


def _check_concurrent_jobs(request: Incoming, around: Around) -> Iterator[Finding]:
    max_jobs = around.limits.concurrent_jobs
    if max_jobs is None or around.jobs_running < max_jobs:
        return
    message = too_many_jobs(Quota(request.namespace, jobs=max_jobs, jobs_running=around.jobs_running))
    link = around.limits.quota_request_url
    hint = "wait for a running job to end, or delete one"
    yield _limit(message, f"{hint}; request more at {link}" if link else hint, "", {})


def _check_egress(request: Incoming, limits: NamespaceLimits) -> Iterator[Finding]:
    if not limits.allowed_egress:
        # Without a list, users need no permission beyond NetworkPolicies that they may create themselves.
        return
    for destination in request.egress:
        if not network.covered(destination, limits.allowed_egress, request.namespace):
            message = (
                f"the job's pods need access to {destination}, which namespace '{request.namespace}' does "
                "not allow"
            )
            yield _limit(message, f"allowed: {', '.join(limits.allowed_egress)}", "network.egress", {})


def _check_images(request: Incoming, limits: NamespaceLimits) -> Iterator[Finding]:
    if not limits.allowed_images:
        return
    for image in request.images:
        if not any(_image_matches(pattern, image) for pattern in limits.allowed_images):
            message = f"image '{image}' is not allowed in namespace '{request.namespace}'"
            yield _limit(message, f"allowed: {', '.join(limits.allowed_images)}", "image", {})


def _image_matches(pattern: str, image: str) -> bool:
    # A pattern with a star matches the whole name; without one, it is a name or a directory of images.
    if "*" in pattern:
        return fnmatch.fnmatchcase(image, pattern)
    return image == pattern or image.startswith((pattern.rstrip("/") + "/", f"{pattern}:", f"{pattern}@"))


def _check_priority_classes(request: Incoming, limits: NamespaceLimits) -> Iterator[Finding]:
    allowed = limits.priority_classes
    for name in sorted({*request.classes} - {*allowed}) if allowed else ():
        message = f"priority class '{name}' is not allowed in namespace '{request.namespace}'"
        yield _limit(message, f"allowed: {', '.join(allowed)}", "priority", {})


def _limit(message: str, hint: str, field: str, patch: dict[str, object]) -> Finding:
    fixes = (Fix(hint, patch),) if patch else ()
    return Finding(code="QUOTA_EXCEEDED", message=message, hint=hint, field=field, fixes=fixes)


def _check_quota(request: Incoming, around: Around) -> Iterator[Finding]:
    """Yield what the client would have refused before submission, with the same messages."""
    job = request.job
    if job is None:
        return
    facts = Facts(
        place="this cluster",
        capacity=Amounts(),
        free=Amounts(),
        room_known=False,
        waits_for_quota=bool(request.queue or around.limits.queue),
        quota=around.quota,
        max_workers=max(job.workers, 1),
        cluster=ClusterFacts(
            namespace=job.namespace, asks=around.asks, ceilings=around.ceilings, bounds=around.bounds
        ),
    )
    try:
        admit(job, Identity(request.user), facts)
    except MpiJobError as error:
        findings = error.findings or (Finding(code=error.code, message=error.message, hint=error.hint),)
        yield from (msgspec.structs.replace(finding, field="") for finding in findings)


# -- what touches others -----------------------------------------------------------------------------
def _check_identity(request: Incoming) -> Iterator[Finding]:
    """Refuse labels that claim another owner, another job, or other values than the job's own fields."""
    if request.operation == _CREATE and not request.uid_is_own:
        message = (
            f"the label mpijob.dev/uid={request.uid} was not issued for user '{request.user}' in "
            f"'{request.namespace}'"
        )
        hint = "remove the label, or create the job with this release of mpijob or a newer one"
        yield _not_allowed(message, hint, "metadata.labels")
    if request.operation == _CREATE and request.owner != request.user:
        message = f"the owner is '{request.owner}', but user '{request.user}' creates the {request.kind}"
        yield _not_allowed(
            message, "remove the label and annotation mpijob.dev/owner", "metadata.annotations"
        )
    if request.operation == _CREATE and request.uid and request.unreadable:
        message = (
            f"{request.kind} '{request.name}' cannot be parsed as the mpijob job that its labels claim: "
            f"{request.unreadable}"
        )
        yield _not_allowed(
            message, "create it with mpijob, or remove the labels mpijob.dev/…", "metadata.labels"
        )
    for field in request.contradictions:
        message = f"the annotation mpijob.dev/rest contradicts the {request.kind}: {field}"
        hint = "remove the field from the annotation: the job's own fields define it"
        yield _not_allowed(message, hint, "metadata.annotations")
    for field in request.reidentified:
        message = f"{field} of {request.kind} '{request.name}' cannot be added, changed or removed"
        yield _not_allowed(message, "keep its value from the creation of the job", field)


# Kubernetes does not check a user's access to the Secrets, ConfigMaps and service accounts that pods name: everybody
# who may create a job could read all of those in its namespace.
def _check_other_users(request: Incoming, around: Around) -> Iterator[Finding]:
    for pod in request.pods:
        yield from _check_pod_labels(request, pod.labels, pod.part)
    if len(request.secrets) > MOST_SECRETS:
        message = f"pods use {len(request.secrets)} Secrets; at most {MOST_SECRETS} are checked"
        yield _not_allowed(message, "combine them into fewer Secrets", "secrets")
    for name in around.unreadable_secrets:
        message = f"User '{request.user}' may not read Secret '{name}', which the job's pods would use"
        yield _not_allowed(
            message,
            f"ask for 'get' on Secret '{name}' in '{request.namespace}', or remove it from the job",
            "secrets",
        )
    if len(request.config_maps) > MOST_SECRETS:
        message = f"pods use {len(request.config_maps)} ConfigMaps; at most {MOST_SECRETS} are checked"
        yield _not_allowed(message, "combine them into fewer ConfigMaps", "volumes")
    for name in around.unreadable_config_maps:
        message = f"User '{request.user}' may not read ConfigMap '{name}', which the job's pods would use"
        hint = f"ask for 'get' on ConfigMap '{name}' in '{request.namespace}', or remove it from the job"
        yield _not_allowed(message, hint, "volumes")
    accounts = {name for pod in request.pods for name in pod.accounts}
    if len(accounts) > MOST_ACCOUNTS:
        message = f"pods use {len(accounts)} service accounts; at most {MOST_ACCOUNTS} are checked"
        yield _not_allowed(message, "use fewer service accounts", "serviceAccountName")
    for name in around.forbidden_accounts:
        message = (
            f"User '{request.user}' may not use service account '{name}', which the job's pods would use"
        )
        hint = "remove serviceAccountName, or set automountServiceAccountToken: false"
        yield _not_allowed(message, hint, "serviceAccountName")


def _check_pod_labels(request: Incoming, labels: object, part: str) -> Iterator[Finding]:
    # NetworkPolicies select pods by this label.
    uid = labels.get("mpijob.dev/uid", "") if isinstance(labels, dict) else ""
    if uid and uid != request.uid:
        message = f"pods are labelled mpijob.dev/uid={uid}, which is not the uid of this {request.kind}"
        yield _not_allowed(message, "remove the label: it lets pods into another job's network", part)


def _check_privileges(request: Incoming) -> Iterator[Finding]:
    for pod in request.pods:
        for privilege in pod.privileges:
            message = f"{pod.part} requests {privilege}, which is not allowed for jobs here"
            yield _not_allowed(
                message, "remove it, or ask for a namespace without these restrictions", pod.part
            )


def _check_immutable(request: Incoming) -> Iterator[Finding]:
    for field in request.changed:
        message = f"{field} of {request.kind} '{request.name}' is immutable: a job cannot be changed after its creation"
        hint = "clone it with the change (mpijob clone), or delete and recreate it"
        yield Finding(code="CONFLICT", message=message, hint=hint, field=field)


def _single_worker_warning(request: Incoming) -> Iterator[Finding]:
    if request.operation == _CREATE and request.job is not None and request.job.workers == 1:
        message = "only one worker is requested: nothing runs on several nodes"
        yield Finding("BAD_WORKERS", message, "use 2 workers or more", "workers", Severity.WARNING)


def _not_allowed(message: str, hint: str, field: str) -> Finding:
    return Finding(code="NOT_ALLOWED", message=message, hint=hint, field=field)
