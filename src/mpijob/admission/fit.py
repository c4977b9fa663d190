"""The answer to "would it start": judged as a submit would be, said in one sentence with its numbers."""

from __future__ import annotations

from collections.abc import Mapping

from mpijob.admission.capacity import largest_shape
from mpijob.admission.decision import admit
from mpijob.admission.queue_reason import insufficient_sentence, start, waiting_sentence
from mpijob.admission.resources import named, number
from mpijob.errors import MpiJobError, NotAllowed
from mpijob.model import Facts, Identity, MPIJob
from mpijob.model.platform.fit import Fit, Verdict


def fit(job: MPIJob, who: Identity, facts: Facts) -> Fit:
    """Return whether the job would start now, wait, or never run here; raise NotAllowed for one who may not."""
    starts = starts_now(job, facts)
    try:
        admit(job, who, facts)
    except NotAllowed:
        raise
    except MpiJobError as error:
        return Fit(verdict=Verdict.NEVER, message=error.message, hint=error.hint, starts_now=starts)
    if not facts.room_known and (facts.cluster is None or facts.cluster.room is None):
        message = "Whether there is room is not known: you may see neither the queue's quota nor the machines"
        return Fit(verdict=Verdict.UNKNOWN, message=message, position=facts.position)
    waits = waiting_sentence(job, facts)
    if starts is not None and starts >= job.workers and not waits:
        return Fit(
            verdict=Verdict.NOW, message=f"Fits now: {_workers(job.workers)} would start", starts_now=starts
        )
    return Fit(
        verdict=Verdict.WAITS,
        message=_waits(job, facts, waits),
        hint=f"{_workers(starts)} of this size would start now" if starts else "",
        position=facts.position,
        ahead_jobs=facts.waiting_jobs,
        ahead=facts.ahead,
        wait_range=facts.wait_range_seconds,
        wait_seconds=facts.wait_estimate_seconds,
        basis=facts.wait_sample,
        wait_basis=facts.wait_basis,
        starts_now=starts,
    )


def starts_now(job: MPIJob, facts: Facts) -> int | None:
    """Return the largest number of workers of this kind that would start now; None where nobody knows."""
    room = facts.cluster.room if facts.cluster is not None else None
    counts = [largest_shape(job, facts.free)] if facts.room_known else []
    counts += [room.now] if room is not None else []
    if not counts:
        return None
    return 0 if facts.waiting_jobs and facts.position not in (None, 1) else max(0, min(counts))


def _waits(job: MPIJob, facts: Facts, waits: str) -> str:
    parts = [waits or insufficient_sentence(job, facts) or "Waits for room"]
    if facts.position is not None:
        parts.append(f"position {facts.position}")
    if ahead := _ahead(facts.ahead):
        parts.append(f"those ahead ask for {ahead}")
    parts.append("it " + start(facts))
    return "; ".join(parts)


def _ahead(amounts: Mapping[str, float]) -> str:
    shown = [name for name in amounts if name.endswith("/gpu")] or [name for name in amounts if name == "cpu"]
    return ", ".join(f"{number(name, amounts[name])} {named(name)}" for name in shown if amounts[name])


def _workers(count: int | None) -> str:
    return "1 worker" if count == 1 else f"{count} workers"
