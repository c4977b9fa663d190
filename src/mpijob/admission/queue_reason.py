"""Why a job waits, and for how long: the sentences of the queue, before submitting and afterwards."""

from __future__ import annotations

from collections.abc import Iterator

from mpijob.admission.capacity import Shortage, bare, by_kind, counted, left, limit, needs, shortages
from mpijob.errors import Finding, Severity
from mpijob.model import Amounts, Facts, MPIJob, Quota


def waiting_sentence(job: MPIJob, facts: Facts) -> str:
    """Return what a queued job waits for: `Waiting for 4 GPUs`; "" when nothing is in its way."""
    if facts.quota is not None and (busy := _quota_used_up(job, facts.quota)):
        return busy
    if missing := [counted(short.what, short.missing) for short in lacking(job, facts)]:
        return f"Waiting for {_and(missing)}"
    if facts.waiting_jobs:
        ahead = "1 job" if facts.waiting_jobs == 1 else f"{facts.waiting_jobs} jobs"
        return f"Waiting for {ahead} ahead in the queue"
    return ""


def insufficient_sentence(job: MPIJob, facts: Facts) -> str:
    """Return what a pending job lacks: `Insufficient GPUs: requested 32, available 24`; "" when nothing."""
    return "; ".join(
        f"Insufficient {short.what}: requested {bare(short.what, short.wanted)}, "
        f"available {bare(short.what, short.there)}"
        for short in lacking(job, facts)
    )


def availability_sentence(job: MPIJob, facts: Facts) -> str:
    """Return how far the wait has come: `Waiting for resources. 24/32 GPUs available.`"""
    short = next(lacking(job, facts), None)
    if short is None:
        return ""
    there = f"{bare(short.what, short.there)}/{bare(short.what, short.wanted)} {short.what}"
    return f"Waiting for resources. {there} available."


def unavailable(short: Shortage) -> str:
    """Return what is short now, before submitting: `Requested 8 GPUs but only 4 available.`"""
    return (
        f"Requested {counted(short.what, short.wanted)} but only {bare(short.what, short.there)} available."
    )


def wait_notice(job: MPIJob, facts: Facts) -> tuple[Finding, ...]:
    """Return the notices that the job will wait, with the estimate where there is one."""
    estimate = _estimate(facts)
    found = [f"{unavailable(short)}{estimate}" for short in lacking(job, facts)]
    if facts.quota is not None and (busy := _quota_used_up(job, facts.quota)):
        found.append(f"{busy}.{estimate}")
    if not found and facts.waiting_jobs:
        found.append(f"{waiting_sentence(job, facts)}.{estimate}")
    hint = starts_now_hint(facts)
    return tuple(
        Finding(code="WILL_WAIT", message=text, hint=hint, severity=Severity.NOTICE) for text in found
    )


def _estimate(facts: Facts) -> str:
    """Return what is known of the wait, with the place in the line where that is known, and what it rests on."""
    place = f" Position {facts.position}." if facts.position is not None else ""
    if facts.wait_estimate_seconds is not None:
        return f"{place}{estimated(facts.wait_estimate_seconds)}{_because(facts, facts.wait_range_seconds)}"
    if facts.wait_range_seconds is not None:
        return f"{place} It {start(facts)}."
    return place


def start(facts: Facts) -> str:
    """Return when a job may start, by a range where there is one, else by one number, and what that rests on."""
    span, guess = facts.wait_range_seconds, facts.wait_estimate_seconds
    told = ranged((guess, guess) if span is None and guess is not None else span)
    return told + _because(facts)


def _because(facts: Facts, span: tuple[float, float] | None = None) -> str:
    """Return in parentheses between what the wait lies, where it differs, and what the estimate rests on."""
    wide = span is not None and round(span[0] / 60) != round(span[1] / 60)
    parts = [between(span)] if span is not None and wide else []
    parts += [facts.wait_basis] if facts.wait_basis else []
    return f" ({'; '.join(parts)})" if parts else ""


def ranged(span: tuple[float, float] | None) -> str:
    """Return an estimate with its uncertainty: `may start in 5 to 12 minutes`."""
    if span is None:
        return "may start at a time that nobody can tell"
    low, high = span
    if high < 90:
        return f"may start within {max(1, round(high))} seconds"
    if low <= 0:
        return f"may start within {_long(high)}"
    if low == high:
        return f"may start in about {_long(high)}"
    return f"may start in {between(span)}"


def between(span: tuple[float, float]) -> str:
    """Return a range of time: `5 to 12 minutes`."""
    low, high = span
    if high < 7200:
        return f"{round(low / 60)} to {round(high / 60)} minutes"
    return f"{low / 3600:.1f} to {high / 3600:.1f} hours"


def _long(seconds: float) -> str:
    return f"{round(seconds / 60)} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"


def starts_now_hint(facts: Facts) -> str:
    """Return that nothing need be done, and the largest shape that would not have to wait where it is known."""
    hint = "the job waits in the queue and starts by itself"
    room = facts.cluster.room if facts.cluster is not None else None
    if room is None or room.now < 1:
        return hint
    return f"{hint}; {room.now} worker{'s' if room.now > 1 else ''} of this size would start now"


def estimated(seconds: float | None) -> str:
    """Return the wait as people say it, with a blank before it; "" when nobody can tell."""
    if seconds is None:
        return ""
    if seconds < 90:
        whole = max(1, round(seconds))
        return f" Estimated wait time: {whole} second{'s' if whole > 1 else ''}"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f" Estimated wait time: {minutes} minutes"
    return f" Estimated wait time: {seconds / 3600:.1f} hours"


def lacking(job: MPIJob, facts: Facts) -> Iterator[Shortage]:
    """Return what is not free now; cores that are shared anyway count only up to all there are."""
    if not facts.room_known:
        return iter(())
    wanted = needs(job)
    if facts.oversubscribe:
        wanted = Amounts(min(wanted.cores, facts.capacity.cores), wanted.memory_bytes, wanted.gpus)
    return shortages(wanted, by_kind(facts.free))


def _quota_used_up(job: MPIJob, quota: Quota) -> str:
    if quota.jobs is not None and quota.jobs_running >= quota.jobs:
        return too_many_jobs(quota)
    for short in shortages(needs(job), left(quota)):
        whole = limit(quota, short.what)
        used = bare(short.what, whole - short.there)
        return f"Waiting for quota: {used} of {counted(short.what, whole)} in use"
    return ""


def too_many_jobs(quota: Quota) -> str:
    """Return how many of the jobs allowed are running: `Quota exceeded: 5/5 jobs running`."""
    return f"Quota exceeded: {quota.jobs_running}/{quota.jobs} jobs running"


def _and(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
