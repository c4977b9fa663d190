"""The admission decision: permissions, name, quota, capacity. The first refusal is raised.

Notices (the job will wait, ranks will share cores) are returned.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from mpijob.admission import cluster, slurm
from mpijob.admission.advisories import advisories
from mpijob.admission.capacity import (
    NO_LIMIT,
    Resource,
    Shortage,
    by_resource,
    format_amount,
    format_with_name,
    largest_worker_count,
    limit,
    needs,
    remaining,
    shortages,
    size_fixes,
    size_hint,
)
from mpijob.admission.queue_reason import missing_resources, too_many_jobs, unavailable_sentence, wait_notice
from mpijob.errors import Conflict, Finding, NotAllowed, QuotaExceeded, Severity
from mpijob.model import Facts, Identity, MPIJob, Quota, Resources
from mpijob.model.spec import dependencies
from mpijob.model.spec.quantity import NONE

_NOTHING = Resources(cpu="0", memory="0")


def admit(job: MPIJob, who: Identity, facts: Facts) -> tuple[Finding, ...]:
    """Return notices for a job that may be submitted; raise NotAllowed, Conflict or QuotaExceeded otherwise."""
    _check_permissions(job, who, facts)
    _check_name(job, facts)
    _check_dependencies(job, facts)
    _check_worker_limit(job, facts)
    if facts.quota is not None:
        _check_requests_set(job, facts, facts.quota)
        _check_quota(job, facts.quota)
        if not (facts.queues and facts.waits_for_quota):
            _check_remaining_quota(job, facts.quota)
    if facts.cluster is not None:
        cluster.check_cluster(job, facts, facts.cluster)
    if facts.room_known:
        # on Slurm the batch script is the launcher: it shares the CPUs of the first node's ranks
        _check_capacity(job if facts.slurm is None else job.replace(launcher=_NOTHING), facts)
        if not facts.queues:
            _check_free(job, facts)
    if facts.cluster is not None:
        cluster.check_fragmentation(job, facts, facts.cluster)
    if facts.slurm is not None:
        slurm.refuse(job, facts.slurm)
        return (*_dependency_notice(facts), *slurm.remarks(job, facts))
    return (
        *_shared_cores(job, facts),
        *_dependency_notice(facts),
        *wait_notice(job, facts),
        *advisories(job, facts),
    )


def _check_permissions(job: MPIJob, who: Identity, facts: Facts) -> None:
    if "create" not in facts.may:
        namespace = f"namespace '{job.namespace}'"
        raise NotAllowed(
            missing_permission("create", who, job.namespace),
            hint=f"{_missing_permissions(facts)}ask an administrator of {namespace}, or use another namespace",
        )
    if facts.cluster is not None and facts.cluster.lacks:
        message = (
            f"User '{who.user}' may create the job, but not the objects it needs (ConfigMaps, Secrets, "
            f"runtimes) in namespace '{job.namespace}'"
        )
        raise NotAllowed(
            message,
            hint=f"{_missing_permissions(facts)}ask for these permissions, or provide files and secrets another way",
        )


def missing_permission(verb: str, who: Identity, namespace: str) -> str:
    """Return the message for a missing permission."""
    return f"User '{who.user}' lacks '{verb}' permission for MPIJobs in namespace '{namespace}'"


def _missing_permissions(facts: Facts) -> str:
    """Return the missing permissions in Kubernetes terms, for administrators."""
    lacks = facts.cluster.lacks if facts.cluster is not None else ()
    return f"missing: {', '.join(lacks)}; " if lacks else ""


def _check_name(job: MPIJob, facts: Facts) -> None:
    if job.name in facts.taken_names:
        message = f"a job named '{job.name}' already exists in namespace '{job.namespace}'"
        suggestion = _suggest_name(job.name, facts.taken_names)
        raise Conflict(message, hint=f"use another name, such as {suggestion}, or delete that job first")


def _check_dependencies(job: MPIJob, facts: Facts) -> None:
    """Raise Conflict if the job depends on a job that does not exist or will never end as it must."""
    for dependency in facts.dependencies:
        if dependency.phase is None:
            message = f"job '{job.name}' depends on '{dependency.ref.name}', which does not exist"
            raise Conflict(
                f"{message} in namespace '{job.namespace}'", hint=f"submit '{dependency.ref.name}' first"
            )
        if dependency.never:
            end = "the failure of " if dependency.end is dependencies.End.FAILED else ""
            message = (
                f"job '{job.name}' depends on {end}'{dependency.ref.name}', which is {dependency.phase.value}"
            )
            raise Conflict(
                f"{message}: it would never start",
                hint=f"run that job again: mpijob retry {dependency.ref.name}",
            )


def _suggest_name(name: str, taken: frozenset[str]) -> str:
    stem, dash, number = name.rpartition("-")
    if not (dash and number.isascii() and number.isdigit() and len(number) < 6):
        stem, number = name, "1"
    names = (f"{stem}-{count}" for count in itertools.count(int(number) + 1))
    return next(candidate for candidate in names if candidate not in taken)


def _check_worker_limit(job: MPIJob, facts: Facts) -> None:
    if job.workers > facts.max_workers:
        message = f"{job.workers} workers requested, but {facts.place} allows {facts.max_workers}"
        hint = f"use at most {facts.max_workers} workers"
        raise _quota_exceeded([_finding(job, message, hint, facts.max_workers)], hint)


def _check_requests_set(job: MPIJob, facts: Facts, quota: Quota) -> None:
    # Kubernetes rejects pods without a request for a resource that a quota counts, unless a LimitRange has
    # a default for it.
    bounds = facts.cluster.bounds if facts.cluster is not None else ()
    defaults = {bound.resource for bound in bounds if bound.default is not None}
    findings = []
    for name, resource in (("cpu", Resource.CORES), ("memory", Resource.MEMORY)):
        for field, resources in _parts(job):
            is_counted = limit(quota, resource) is not NO_LIMIT and name not in defaults
            if is_counted and getattr(resources, name) == NONE:
                message = (
                    f"{field}.{name} is none, but the quota of '{quota.namespace}' requires a value for "
                    f"{resource.value}"
                )
                findings.append(Finding("QUOTA_EXCEEDED", message, f"set {field}.{name}", f"{field}.{name}"))
    if findings:
        raise _quota_exceeded(findings, findings[0].hint)


def _parts(job: MPIJob) -> Iterable[tuple[str, Resources]]:
    """Return the resources of each kind of worker and of the launcher, by the field that sets them."""
    for part in job.parts:
        yield "groups" if part.group else "resources", part.job.resources
    yield "launcher", job.launcher


def _check_quota(job: MPIJob, quota: Quota) -> None:
    """Raise QuotaExceeded for what exceeds the whole quota."""
    limits = {resource: limit(quota, resource) for resource in Resource}
    if quota.jobs == 0:
        hint = _with_link("ask for a larger quota", quota)
        raise _quota_exceeded([_finding(job, too_many_jobs(quota), hint, 0)], hint)
    if short := list(shortages(needs(job), limits)):
        max_workers = largest_worker_count(job, limits)
        hint = _with_link(f"{_format_used(short[0], quota)}; {size_hint(job, max_workers)}", quota)
        raise _quota_exceeded(
            [_finding(job, _quota_message(shortage), hint, max_workers) for shortage in short], hint
        )


def _quota_message(shortage: Shortage) -> str:
    requested, available = (
        format_with_name(shortage.resource, shortage.requested),
        format_amount(shortage.resource, shortage.available),
    )
    if shortage.resource is Resource.GPUS:
        return f"Requested {requested}, but project quota is {available}. Contact admin or reduce workers."
    unit = " cores" if shortage.resource is Resource.CORES else ""
    remedy = "Request quota increase or reduce workers."
    return f"Job requires {requested}, but project quota is {available}{unit}. {remedy}"


def _format_used(shortage: Shortage, quota: Quota) -> str:
    total = limit(quota, shortage.resource)
    used = total - remaining(quota)[shortage.resource]
    return (
        f"{format_amount(shortage.resource, used)} of {format_with_name(shortage.resource, total)} are in use"
    )


def _check_remaining_quota(job: MPIJob, quota: Quota) -> None:
    """Raise QuotaExceeded for what exceeds the remaining quota, where there is no queue."""
    if quota.jobs is not None and quota.jobs_running >= quota.jobs:
        hint = "wait for a running job to end, or delete one"
        raise _quota_exceeded([_finding(job, too_many_jobs(quota), hint, job.workers)], hint)
    available = remaining(quota)
    if short := list(shortages(needs(job), available)):
        max_workers = largest_worker_count(job, available)
        hint = _with_link(f"{size_hint(job, max_workers)}, or wait for a running job to end", quota)
        raise _quota_exceeded(
            [
                _finding(job, _remaining_quota_message(shortage, quota), hint, max_workers)
                for shortage in short
            ],
            hint,
        )


def _remaining_quota_message(shortage: Shortage, quota: Quota) -> str:
    free, total = (
        format_amount(shortage.resource, shortage.available),
        format_amount(shortage.resource, limit(quota, shortage.resource)),
    )
    return (
        f"{quota.namespace}: {format_with_name(shortage.resource, shortage.requested)} requested, {free} "
        f"of {total} free"
    )


def _check_capacity(job: MPIJob, facts: Facts) -> None:
    """Raise QuotaExceeded for what exceeds the total capacity; cores may be shared where that is allowed."""
    if facts.cluster is not None and facts.cluster.room is not None and facts.cluster.room.grows:
        return
    available = by_resource(facts.capacity)
    if facts.oversubscribe:
        available[Resource.CORES] = NO_LIMIT
    if short := list(shortages(needs(job), available)):
        max_workers = largest_worker_count(job, available)
        hint = size_hint(job, max_workers)
        raise _quota_exceeded(
            [_finding(job, _capacity_message(shortage, facts), hint, max_workers) for shortage in short], hint
        )


def _capacity_message(shortage: Shortage, facts: Facts) -> str:
    requested, available = (
        format_with_name(shortage.resource, shortage.requested),
        format_amount(shortage.resource, shortage.available),
    )
    return f"Requested {requested}, but {facts.place} has {available} in total."


def _check_free(job: MPIJob, facts: Facts) -> None:
    if short := list(missing_resources(job, facts)):
        max_workers = largest_worker_count(job, by_resource(facts.free))
        hint = f"{size_hint(job, max_workers)}, or wait for a running job to end"
        raise _quota_exceeded(
            [_finding(job, unavailable_sentence(shortage), hint, max_workers) for shortage in short], hint
        )


def _dependency_notice(facts: Facts) -> tuple[Finding, ...]:
    unfinished = [
        str(dependencies.After(dependency.ref.name, dependency.end))
        for dependency in facts.dependencies
        if not dependency.met
    ]
    if not unfinished:
        return ()
    hint = "it starts automatically then, and fails if one of them ends otherwise"
    message = f"{dependencies.sentence(unfinished)}."
    return (Finding(code="WILL_WAIT", field="after", message=message, hint=hint, severity=Severity.NOTICE),)


def _shared_cores(job: MPIJob, facts: Facts) -> tuple[Finding, ...]:
    """Return a notice if ranks share cores."""
    # The launcher is not counted: beside the ranks it hardly uses a core.
    ranks, cores = needs(job).minus(job.launcher.asked).cores, facts.capacity.cores
    if not facts.oversubscribe or ranks <= cores + 1e-9:
        return ()
    requested = format_with_name(Resource.CORES, needs(job).cores)
    available = f"{facts.place} has {format_amount(Resource.CORES, cores)}"
    message = f"{requested} requested, but {available}: {job.world} ranks share them"
    hint = "the job runs, but slower; measure performance on more cores"
    return (Finding(code="SHARED_CORES", message=message, hint=hint, severity=Severity.NOTICE),)


def _with_link(hint: str, quota: Quota) -> str:
    return f"{hint}; request more quota at {quota.request_url}" if quota.request_url else hint


def _finding(job: MPIJob, message: str, hint: str, max_workers: int) -> Finding:
    fixes = size_fixes(job, max_workers, hint)
    return Finding(code="QUOTA_EXCEEDED", message=message, hint=hint, field="workers", fixes=fixes)


def _quota_exceeded(items: Iterable[Finding], hint: str) -> QuotaExceeded:
    findings = tuple(items)
    return QuotaExceeded("\n".join(finding.message for finding in findings), hint=hint, findings=findings)
