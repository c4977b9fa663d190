"""The judgement: rights first, then the name, then quota, then room. The first refusal is raised.

What is only worth knowing (the job will wait, ranks will share cores) is returned as notices.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from mpijob.admission import cluster
from mpijob.admission.advisories import remarks
from mpijob.admission.capacity import (
    NO_LIMIT,
    Shortage,
    What,
    bare,
    by_kind,
    counted,
    largest,
    left,
    limit,
    needs,
    shortages,
    worker_needs,
)
from mpijob.admission.queue_reason import lacking, too_many_jobs, unavailable, wait_notice
from mpijob.errors import Conflict, Finding, Fix, NotAllowed, QuotaExceeded, Severity
from mpijob.model import Facts, Identity, MPIJob, Phase, Quota
from mpijob.model.spec import dependencies
from mpijob.model.spec.quantity import NONE


def admit(job: MPIJob, who: Identity, facts: Facts) -> tuple[Finding, ...]:
    """Return notices for a job that may be sent; raise NotAllowed, Conflict or QuotaExceeded for others."""
    _permitted(job, who, facts)
    _unique(job, facts)
    _dependable(job, facts)
    _few_enough(job, facts)
    if facts.quota is not None:
        _amounts_said(job, facts, facts.quota)
        _within_quota(job, facts.quota)
        if not (facts.queues and facts.waits_for_quota):
            _quota_left(job, facts.quota)
    if facts.cluster is not None:
        cluster.refuse(job, facts, facts.cluster)
    if facts.room_known:
        _within_capacity(job, facts)
        if not facts.queues:
            _free_now(job, facts)
    if facts.cluster is not None:
        cluster.refuse_pieces(job, facts, facts.cluster)
    return (*_shared_cores(job, facts), *_told_to_wait(facts), *wait_notice(job, facts), *remarks(job, facts))


def _permitted(job: MPIJob, who: Identity, facts: Facts) -> None:
    if "create" not in facts.may:
        place = f"namespace '{job.namespace}'"
        raise NotAllowed(
            forbidden("create", who, job.namespace),
            hint=f"{_missing(facts)}ask an administrator of {place}, or use another namespace",
        )
    if facts.cluster is not None and facts.cluster.lacks:
        message = (
            f"User '{who.user}' may create the job, but not what goes along with it in '{job.namespace}'"
        )
        raise NotAllowed(
            message, hint=f"{_missing(facts)}ask for it, or put files and secrets there by other means"
        )


def forbidden(verb: str, who: Identity, namespace: str) -> str:
    """Return the sentence for whoever may not do something with jobs."""
    return f"User '{who.user}' lacks '{verb}' permission for MPIJobs in namespace '{namespace}'"


def _missing(facts: Facts) -> str:
    """Return the rights that a cluster wants for it, as its administrators name them."""
    lacks = facts.cluster.lacks if facts.cluster is not None else ()
    return f"missing: {', '.join(lacks)}; " if lacks else ""


def _unique(job: MPIJob, facts: Facts) -> None:
    if job.name in facts.taken_names:
        message = f"a job named '{job.name}' exists already in namespace '{job.namespace}'"
        free = _next_name(job.name, facts.taken_names)
        raise Conflict(message, hint=f"use another name, such as {free}, or delete that job first")


def _dependable(job: MPIJob, facts: Facts) -> None:
    """Refuse a job that waits for one that is not there, or that will never succeed."""
    for one in facts.dependencies:
        if one.phase is None:
            message = f"job '{job.name}' is to wait for '{one.ref.name}', and there is no such job"
            raise Conflict(f"{message} in namespace '{job.namespace}'", hint="submit that one first")
        if one.never:
            message = f"job '{job.name}' is to wait for '{one.ref.name}', which is {one.phase.value}"
            raise Conflict(
                f"{message}: it would never start", hint=f"run that one again: mpijob retry {one.ref.name}"
            )


def _next_name(name: str, taken: frozenset[str]) -> str:
    stem, dash, number = name.rpartition("-")
    if not (dash and number.isascii() and number.isdigit() and len(number) < 6):
        stem, number = name, "1"
    names = (f"{stem}-{count}" for count in itertools.count(int(number) + 1))
    return next(candidate for candidate in names if candidate not in taken)


def _few_enough(job: MPIJob, facts: Facts) -> None:
    if job.workers > facts.max_workers:
        message = f"{job.workers} workers are asked for, but {facts.place} allows {facts.max_workers}"
        hint = f"use at most {facts.max_workers} workers"
        raise _refusal([_told(message, hint, facts.max_workers)], hint)


def _amounts_said(job: MPIJob, facts: Facts, quota: Quota) -> None:
    """Refuse a job that asks for none of what a quota counts, unless the namespace has a default for it."""
    bounds = facts.cluster.bounds if facts.cluster is not None else ()
    defaults = {bound.resource for bound in bounds if bound.default is not None}
    found = []
    for name, what in (("cpu", What.CORES), ("memory", What.MEMORY)):
        for field, part in (("resources", job.resources), ("launcher", job.launcher)):
            counted_there = limit(quota, what) is not NO_LIMIT and name not in defaults
            if counted_there and getattr(part, name) == NONE:
                message = f"{field}.{name} is none, and the quota of '{quota.namespace}' counts {what.value}"
                found.append(Finding("QUOTA_EXCEEDED", message, f"set {field}.{name}", f"{field}.{name}"))
    if found:
        raise _refusal(found, found[0].hint)


def _within_quota(job: MPIJob, quota: Quota) -> None:
    """Refuse what the quota would not allow even if nothing else ran."""
    whole = {what: limit(quota, what) for what in What}
    if quota.jobs == 0:
        hint = _with_link("ask for a larger quota", quota)
        raise _refusal([_told(too_many_jobs(quota), hint, 0)], hint)
    if found := list(shortages(needs(job), whole)):
        fits = largest(job, whole)
        hint = _with_link(f"{_used(found[0], quota)}; {_at_most(fits, job)}", quota)
        raise _refusal([_told(_beyond_quota(short), hint, fits) for short in found], hint)


def _beyond_quota(short: Shortage) -> str:
    wanted, there = counted(short.what, short.wanted), bare(short.what, short.there)
    if short.what is What.GPUS:
        return f"Requested {wanted}, but project quota is {there}. Contact admin or reduce workers."
    unit = " cores" if short.what is What.CORES else ""
    remedy = "Request quota increase or reduce workers."
    return f"Job requires {wanted}, but project quota is {there}{unit}. {remedy}"


def _used(short: Shortage, quota: Quota) -> str:
    there = limit(quota, short.what)
    used = there - left(quota)[short.what]
    return f"{bare(short.what, used)} of {counted(short.what, there)} are in use"


def _quota_left(job: MPIJob, quota: Quota) -> None:
    """Refuse, where nothing queues, what the quota has no room for now."""
    if quota.jobs is not None and quota.jobs_running >= quota.jobs:
        hint = "wait for a running job to end, or delete one"
        raise _refusal([_told(too_many_jobs(quota), hint, job.workers)], hint)
    room = left(quota)
    if found := list(shortages(needs(job), room)):
        fits = largest(job, room)
        hint = _with_link(f"{_at_most(fits, job)}, or wait for a running job to end", quota)
        raise _refusal([_told(_used_up(short, quota), hint, fits) for short in found], hint)


def _used_up(short: Shortage, quota: Quota) -> str:
    there, whole = bare(short.what, short.there), bare(short.what, limit(quota, short.what))
    return f"{quota.namespace}: {counted(short.what, short.wanted)} requested, {there} of {whole} free"


def _within_capacity(job: MPIJob, facts: Facts) -> None:
    """Refuse what would not fit even if nothing else ran; cores may be shared where that is allowed."""
    if facts.cluster is not None and facts.cluster.room is not None and facts.cluster.room.grows:
        return
    room = by_kind(facts.capacity)
    if facts.oversubscribe:
        room[What.CORES] = NO_LIMIT
    if found := list(shortages(needs(job), room)):
        fits = largest(job, room)
        hint = _at_most(fits, job)
        raise _refusal([_told(_beyond_capacity(short, facts), hint, fits) for short in found], hint)


def _beyond_capacity(short: Shortage, facts: Facts) -> str:
    wanted, there = counted(short.what, short.wanted), bare(short.what, short.there)
    return f"Requested {wanted}, but {facts.place} has {there} in all."


def _free_now(job: MPIJob, facts: Facts) -> None:
    if found := list(lacking(job, facts)):
        fits = largest(job, by_kind(facts.free))
        hint = f"{_at_most(fits, job)}, or wait for a running job to end"
        raise _refusal([_told(unavailable(short), hint, fits) for short in found], hint)


def _told_to_wait(facts: Facts) -> tuple[Finding, ...]:
    waits = [one.ref.name for one in facts.dependencies if one.phase is not Phase.SUCCEEDED]
    if not waits:
        return ()
    hint = "it starts by itself then, and ends as Failed when one of them does not succeed"
    message = f"{dependencies.sentence(waits)}."
    return (Finding(code="WILL_WAIT", field="after", message=message, hint=hint, severity=Severity.NOTICE),)


def _shared_cores(job: MPIJob, facts: Facts) -> tuple[Finding, ...]:
    """Tell that ranks take turns; a launcher beside them hardly uses a core, and is no reason to say so."""
    ranks, there = worker_needs(job).cores * job.workers, facts.capacity.cores
    if not facts.oversubscribe or ranks <= there + 1e-9:
        return ()
    wanted = counted(What.CORES, needs(job).cores)
    message = f"{wanted} requested, {bare(What.CORES, there)} available: {job.world} ranks share cores and run slower"
    hint = "measure speed on more cores"
    return (Finding(code="SHARED_CORES", message=message, hint=hint, severity=Severity.NOTICE),)


def _at_most(fits: int, job: MPIJob) -> str:
    if fits >= 1:
        return f"use at most {fits} worker{'s' if fits > 1 else ''} of this size"
    return f"not even 1 worker of this size fits: reduce resources (now {_size(job)})"


def _size(job: MPIJob) -> str:
    return f"cpu: {job.resources.cpu}, memory: {job.resources.memory}, gpu: {job.resources.gpu}"


def _with_link(hint: str, quota: Quota) -> str:
    return f"{hint}; request more quota at {quota.request_url}" if quota.request_url else hint


def _told(message: str, hint: str, fits: int) -> Finding:
    fixes = (Fix(hint, {"workers": fits}),) if fits >= 1 else ()
    return Finding(code="QUOTA_EXCEEDED", message=message, hint=hint, field="workers", fixes=fixes)


def _refusal(found: Iterable[Finding], hint: str) -> QuotaExceeded:
    findings = tuple(found)
    return QuotaExceeded("\n".join(one.message for one in findings), hint=hint, findings=findings)
