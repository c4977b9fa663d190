"""Whether a job would start now: the decision of a submission as one message with numbers."""

from __future__ import annotations

from collections.abc import Mapping

from mpijob.admission.capacity import max_workers, whole_size
from mpijob.admission.decision import admit
from mpijob.admission.queue_reason import format_start, insufficient_sentence, waiting_sentence
from mpijob.admission.resources import display_name, format_amount
from mpijob.errors import MpiJobError, NotAllowed
from mpijob.model import Facts, Identity, MPIJob
from mpijob.model.platform.fit import Fit, Verdict


def fit(job: MPIJob, identity: Identity, facts: Facts) -> Fit:
    """Return whether the job would start now, wait, or never run; raise NotAllowed without permission."""
    workers_now = starts_now(job, facts)
    try:
        admit(job, identity, facts)
    except NotAllowed:
        raise
    except MpiJobError as error:
        return Fit(verdict=Verdict.NEVER, message=error.message, hint=error.hint, starts_now=workers_now)
    if not facts.room_known and (facts.cluster is None or facts.cluster.room is None):
        message = "Capacity is unknown: no permission to read the queue's quota or the nodes"
        return Fit(verdict=Verdict.UNKNOWN, message=message, position=facts.position)
    wait_reason = waiting_sentence(job, facts)
    if workers_now is not None and workers_now >= job.workers and not wait_reason:
        return Fit(
            verdict=Verdict.NOW,
            message=f"Fits now: {_workers(job.workers)} would start",
            starts_now=workers_now,
        )
    reason = wait_reason or insufficient_sentence(job, facts) or "Waits for resources"
    is_smaller = workers_now is not None and workers_now < job.workers and not facts.waiting_jobs
    return Fit(
        verdict=Verdict.WAITS,
        message=_wait_message(facts, reason),
        reason=reason,
        hint=f"{_workers(workers_now)}{'' if job.groups else ' of this size'} would start now"
        if workers_now and is_smaller
        else "",
        position=facts.position,
        ahead_jobs=facts.waiting_jobs,
        ahead=facts.ahead,
        wait_range=facts.wait_range_seconds,
        wait_seconds=facts.wait_estimate_seconds,
        basis=facts.wait_sample,
        wait_basis=facts.wait_basis,
        starts_now=workers_now,
    )


def starts_now(job: MPIJob, facts: Facts) -> int | None:
    """Return the largest number of workers of this size that would start now; None if unknown."""
    room = facts.cluster.room if facts.cluster is not None else None
    counts = [max_workers(job, facts.free)] if facts.room_known else []
    counts += [room.now] if room is not None else []
    if not counts:
        return None
    if facts.waiting_jobs and facts.position not in (None, 1):
        return 0
    return whole_size(job, min(counts) - (job.workers - job.resizable.job.workers))


def _wait_message(facts: Facts, reason: str) -> str:
    parts = [reason]
    if facts.position is not None:
        parts.append(f"position {facts.position}")
    if ahead := _format_ahead(facts.ahead):
        parts.append(f"jobs ahead in the queue request {ahead}")
    parts.append("it " + format_start(facts))
    return "; ".join(parts)


def _format_ahead(amounts: Mapping[str, float]) -> str:
    resources = [name for name in amounts if name.endswith("/gpu")] or [
        name for name in amounts if name == "cpu"
    ]
    return ", ".join(
        f"{format_amount(name, amounts[name])} {display_name(name)}" for name in resources if amounts[name]
    )


def _workers(count: int | None) -> str:
    return "1 worker" if count == 1 else f"{count} workers"
