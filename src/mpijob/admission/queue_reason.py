"""Why a job waits, and for how long: the messages of the queue, before and after submission."""

from __future__ import annotations

from collections.abc import Iterator

from mpijob.admission.capacity import (
    Shortage,
    by_resource,
    format_amount,
    format_with_name,
    limit,
    needs,
    remaining,
    shortages,
)
from mpijob.errors import Finding, Severity
from mpijob.model import Amounts, Facts, MPIJob, Quota


def waiting_sentence(job: MPIJob, facts: Facts) -> str:
    """Return what a queued job waits for: `Waiting for 4 GPUs`; "" if nothing blocks it."""
    if facts.quota is not None and (quota_reason := _quota_reason(job, facts.quota)):
        return quota_reason
    if missing := [
        format_with_name(shortage.resource, shortage.missing) for shortage in missing_resources(job, facts)
    ]:
        return f"Waiting for {_join(missing)}"
    if facts.waiting_jobs:
        ahead = "1 job" if facts.waiting_jobs == 1 else f"{facts.waiting_jobs} jobs"
        return f"Waiting for {ahead} ahead in the queue"
    return ""


def group_sentence(job: MPIJob) -> str:
    """Return what a job waits for whose group runs as many jobs as it may; "" for a job of no group."""
    if job.concurrency is None:
        return ""
    jobs = "1 job" if job.concurrency.limit == 1 else f"{job.concurrency.limit} jobs"
    return f"Waiting for a job of group '{job.group}' to end: {jobs} may run at once"


def insufficient_sentence(job: MPIJob, facts: Facts) -> str:
    """Return what a pending job lacks: `Insufficient GPUs: requested 32, available 24`; "" if nothing."""
    return "; ".join(
        f"Insufficient {shortage.resource}: requested {format_amount(shortage.resource, shortage.requested)}, "
        f"available {format_amount(shortage.resource, shortage.available)}"
        for shortage in missing_resources(job, facts)
    )


def availability_sentence(job: MPIJob, facts: Facts) -> str:
    """Return how much is available: `Waiting for resources. 24/32 GPUs available.`"""
    shortage = next(missing_resources(job, facts), None)
    if shortage is None:
        return ""
    available = format_amount(shortage.resource, shortage.available)
    requested = format_amount(shortage.resource, shortage.requested)
    return f"Waiting for resources. {available}/{requested} {shortage.resource} available."


def unavailable_sentence(shortage: Shortage) -> str:
    """Return what is not available now: `Requested 8 GPUs but only 4 available.`"""
    return (
        f"Requested {format_with_name(shortage.resource, shortage.requested)} but only "
        f"{format_amount(shortage.resource, shortage.available)} available."
    )


def wait_notice(job: MPIJob, facts: Facts) -> tuple[Finding, ...]:
    """Return notices that the job will wait, with the estimate if there is one."""
    estimate = _estimate(facts)
    messages = [f"{unavailable_sentence(shortage)}{estimate}" for shortage in missing_resources(job, facts)]
    if facts.quota is not None and (quota_reason := _quota_reason(job, facts.quota)):
        messages.append(f"{quota_reason}.{estimate}")
    if not messages and facts.waiting_jobs:
        messages.append(f"{waiting_sentence(job, facts)}.{estimate}")
    hint = starts_now_hint(job, facts)
    return tuple(
        Finding(code="WILL_WAIT", message=text, hint=hint, severity=Severity.NOTICE) for text in messages
    )


def _estimate(facts: Facts) -> str:
    """Return what is known of the wait: the queue position, the estimate, its range and its basis."""
    position = f" Position {facts.position}." if facts.position is not None else ""
    if facts.wait_estimate_seconds is not None:
        return (
            f"{position}{format_wait(facts.wait_estimate_seconds)}{_reasons(facts, facts.wait_range_seconds)}"
        )
    if facts.wait_range_seconds is not None:
        return f"{position} It {format_start(facts)}."
    return position


def format_start(facts: Facts) -> str:
    """Return when a job may start: a range if there is one, else one number; and the basis of the estimate."""
    wait_range, estimate = facts.wait_range_seconds, facts.wait_estimate_seconds
    sentence = format_range(
        (estimate, estimate) if wait_range is None and estimate is not None else wait_range
    )
    return sentence + _reasons(facts)


def _reasons(facts: Facts, wait_range: tuple[float, float] | None = None) -> str:
    """Return the range of the wait, if its ends differ, and the basis of the estimate, in parentheses."""
    is_wide = wait_range is not None and round(wait_range[0] / 60) != round(wait_range[1] / 60)
    parts = [format_bounds(wait_range)] if wait_range is not None and is_wide else []
    parts += [facts.wait_basis] if facts.wait_basis else []
    return f" ({'; '.join(parts)})" if parts else ""


def format_range(wait_range: tuple[float, float] | None) -> str:
    """Format an estimate with its uncertainty: `may start in 5 to 12 minutes`."""
    if wait_range is None:
        return "may start at an unknown time"
    low, high = wait_range
    if high < 90:
        return f"may start within {max(1, round(high))} seconds"
    if low <= 0:
        return f"may start within {_format_duration(high)}"
    if low == high:
        return f"may start in about {_format_duration(high)}"
    return f"may start in {format_bounds(wait_range)}"


def format_bounds(wait_range: tuple[float, float]) -> str:
    """Format a range of time: `5 to 12 minutes`."""
    low, high = wait_range
    if high < 7200:
        return f"{round(low / 60)} to {round(high / 60)} minutes"
    return f"{low / 3600:.1f} to {high / 3600:.1f} hours"


def _format_duration(seconds: float) -> str:
    return f"{round(seconds / 60)} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"


def starts_now_hint(job: MPIJob, facts: Facts) -> str:
    """Return that the job starts automatically, and the largest size that would start now if known."""
    hint = "the job waits in the queue and starts automatically"
    room = facts.cluster.room if facts.cluster is not None else None
    if room is None or room.now < 1:
        return hint
    size = "" if job.groups else " of this size"
    return f"{hint}; {room.now} worker{'s' if room.now > 1 else ''}{size} would start now"


def format_wait(seconds: float | None) -> str:
    """Format an estimated wait, with a leading blank; "" if unknown."""
    if seconds is None:
        return ""
    if seconds < 90:
        whole = max(1, round(seconds))
        return f" Estimated wait time: {whole} second{'s' if whole > 1 else ''}"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f" Estimated wait time: {minutes} minutes"
    return f" Estimated wait time: {seconds / 3600:.1f} hours"


def missing_resources(job: MPIJob, facts: Facts) -> Iterator[Shortage]:
    """Return what is not free now."""
    if not facts.room_known:
        return iter(())
    # Shared cores count only up to the total number of cores.
    requested = needs(job)
    if facts.oversubscribe:
        requested = Amounts(
            min(requested.cores, facts.capacity.cores), requested.memory_bytes, requested.gpus
        )
    return shortages(requested, by_resource(facts.free))


def _quota_reason(job: MPIJob, quota: Quota) -> str:
    if quota.jobs is not None and quota.jobs_running >= quota.jobs:
        return too_many_jobs(quota)
    for shortage in shortages(needs(job), remaining(quota)):
        total = limit(quota, shortage.resource)
        used = format_amount(shortage.resource, total - shortage.available)
        return f"Waiting for quota: {used} of {format_with_name(shortage.resource, total)} in use"
    return ""


def too_many_jobs(quota: Quota) -> str:
    """Return how many of the allowed jobs are running: `Quota exceeded: 5/5 jobs running`."""
    return f"Quota exceeded: {quota.jobs_running}/{quota.jobs} jobs running"


def _join(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
