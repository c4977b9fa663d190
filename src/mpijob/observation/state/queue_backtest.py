"""How good estimates of waiting are: what was at submission, and what today's way would have told then.

The replay knows at each moment only what was known then: who ran, who waited, which runs had ended. Jobs that nobody
recorded are not in it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

import msgspec

from mpijob.model.ref import JobRef
from mpijob.model.status.forecast import Accuracy, Outcome
from mpijob.observation.state import queue_wait

WORTH_SECONDS = 1.0  # a job that waited shorter, and was to, says nothing about estimates
_MOST = 500
_RUNS = 50


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """A job of the record: when it came into its queue, started and ended, what it held, and which program it ran."""

    ref: JobRef
    queue: str
    queued: float
    started: float | None
    ended: float | None
    needs: queue_wait.Amounts
    program: str
    owner: str = ""
    priority: int = 0
    deadline_seconds: float | None = None
    only_attempt: bool = True


def replay(
    jobs: Iterable[Past], capacity: queue_wait.Amounts | None, *, strict: bool, fair: bool
) -> list[Outcome]:
    """Return what would have been estimated for each job of one queue when it came, and what came of it.

    Where nobody knows the queue's capacity, it is the most that its jobs held at once.
    """
    known = sorted(jobs, key=lambda one: one.queued)
    most = _most_held(known) if capacity is None else capacity
    found = []
    for job in known[-_MOST:]:
        if job.started is None or not job.only_attempt:
            continue
        forecast = queue_wait.last_forecast(_queue_at(known, job, most, strict=strict, fair=fair))
        found.append(
            Outcome(ref=job.ref, queue=job.queue, forecast=forecast, waited_seconds=job.started - job.queued)
        )
    return [one for one in found if worth(one)]


def worth(outcome: Outcome) -> bool:
    """Return whether an outcome says anything: the job waited, or was said to."""
    span = outcome.forecast.span
    said = max(outcome.forecast.seconds or 0.0, span[1] if span is not None else 0.0)
    return max(outcome.waited_seconds, said) >= WORTH_SECONDS


def _queue_at(
    known: Sequence[Past], job: Past, capacity: queue_wait.Amounts, *, strict: bool, fair: bool
) -> queue_wait.Queue:
    """Return the queue as it stood when a job came, that job last."""
    now = job.queued
    before = known[: bisect_left(known, now, key=lambda one: one.queued)]
    running = [
        one for one in before if one.started is not None and one.started <= now < (one.ended or now + 1)
    ]
    waiting = [one for one in before if one.started is None or one.started > now]
    waiting = [one for one in waiting if one.ended is None or one.ended > now]
    runs: dict[str, list[float]] = {}
    for one in before:
        if one.started is not None and one.ended is not None and one.ended <= now:
            runs.setdefault(one.program, []).append(one.ended - one.started)
    free = dict(capacity)
    for one in running:
        for name, amount in one.needs.items():
            free[name] = free.get(name, 0.0) - amount
    return queue_wait.Queue(
        free=free,
        running=tuple(
            queue_wait.Running(
                elapsed_seconds=now - (one.started or now),
                holds=one.needs,
                owner=one.owner,
                durations=tuple(runs.get(one.program, ())[-_RUNS:]),
                deadline_seconds=one.deadline_seconds,
            )
            for one in running
        ),
        waiting=tuple(
            queue_wait.Waiting(
                needs=one.needs,
                priority=one.priority,
                owner=one.owner,
                durations=tuple(runs.get(one.program, ())[-_RUNS:]),
                deadline_seconds=one.deadline_seconds,
            )
            for one in (*waiting, job)
        ),
        strict=strict,
        fair=fair,
    )


def _most_held(known: Sequence[Past]) -> dict[str, float]:
    """Return the most that jobs held at once, by resource."""
    changes: list[tuple[float, int, queue_wait.Amounts]] = []
    for one in known:
        if one.started is not None:
            changes.append((one.started, 1, one.needs))
            changes += [(one.ended, -1, one.needs)] if one.ended is not None else []
    now: dict[str, float] = {}
    most: dict[str, float] = {}
    for _, sign, amounts in sorted(changes, key=lambda change: (change[0], change[1])):
        for name, amount in amounts.items():
            now[name] = now.get(name, 0.0) + sign * amount
            most[name] = max(most.get(name, 0.0), now[name])
    return most


def accuracy(outcomes: Sequence[Outcome]) -> Accuracy:
    """Return how far estimates were from what came.

    >>> from mpijob.model.status.forecast import Forecast
    >>> ref = JobRef("cv", "train")
    >>> told = Forecast(1, 60.0, (30.0, 90.0))
    >>> accuracy([Outcome(ref=ref, queue="", forecast=told, waited_seconds=80.0)]).median_seconds
    20.0
    """
    signed = [one.error_seconds for one in outcomes if one.error_seconds is not None]
    errors = sorted(abs(error) for error in signed)
    shares = sorted(
        abs(one.error_seconds) / max(one.waited_seconds, WORTH_SECONDS) * 100
        for one in outcomes
        if one.error_seconds is not None
    )
    ranged = [one for one in outcomes if one.within is not None]
    return Accuracy(
        jobs=len(outcomes),
        estimated=len(signed),
        ranged=len(ranged),
        within=sum(bool(one.within) for one in ranged),
        late=sum(
            one.forecast.span is not None and one.waited_seconds > one.forecast.span[1] for one in ranged
        ),
        median_seconds=queue_wait.quantile(errors, 0.5) if errors else None,
        ninetieth_seconds=queue_wait.quantile(errors, 0.9) if errors else None,
        median_percent=queue_wait.quantile(shares, 0.5) if shares else None,
        bias_seconds=queue_wait.quantile(sorted(signed), 0.5) if signed else None,
    )
