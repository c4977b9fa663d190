"""Measures the accuracy of wait estimates: those made at submission, and those that the current method would
have made.

The replay uses only what was known at each time: running and waiting jobs, and the durations of ended ones.
Jobs without a record are not included.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

import msgspec

from mpijob.model.ref import JobRef
from mpijob.model.status.forecast import Accuracy, Outcome
from mpijob.observation.state import queue_wait

# Jobs that waited less, and were estimated to, would hide the errors of the others.
LEAST_WAIT_SECONDS = 1.0
_MOST_JOBS = 500
_MOST_RUNS = 50


class PastJob(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded job: when it was queued, started and ended, its resources and its program."""

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
    jobs: Iterable[PastJob], capacity: queue_wait.Amounts | None, *, strict: bool, fair: bool
) -> list[Outcome]:
    """Return the estimate for each job of one queue at its submission, and its real wait.

    If the queue's `capacity` is unknown, the most that its jobs held at once is used.
    """
    ordered = sorted(jobs, key=lambda job: job.queued)
    available = _most_held(ordered) if capacity is None else capacity
    found = []
    for job in ordered[-_MOST_JOBS:]:
        if job.started is None or not job.only_attempt:
            continue
        forecast = queue_wait.last_forecast(_queue_at(ordered, job, available, strict=strict, fair=fair))
        found.append(
            Outcome(ref=job.ref, queue=job.queue, forecast=forecast, waited_seconds=job.started - job.queued)
        )
    return [outcome for outcome in found if is_significant(outcome)]


def is_significant(outcome: Outcome) -> bool:
    """Return whether an outcome counts: the job waited, or was estimated to."""
    span = outcome.forecast.span
    estimated = max(outcome.forecast.seconds or 0.0, span[1] if span is not None else 0.0)
    return max(outcome.waited_seconds, estimated) >= LEAST_WAIT_SECONDS


def _queue_at(
    known: Sequence[PastJob], job: PastJob, capacity: queue_wait.Amounts, *, strict: bool, fair: bool
) -> queue_wait.Queue:
    # The queue at the time when the job was submitted, with that job as its last.
    now = job.queued
    earlier = known[: bisect_left(known, now, key=lambda past: past.queued)]
    running = [
        past for past in earlier if past.started is not None and past.started <= now < (past.ended or now + 1)
    ]
    waiting = [past for past in earlier if past.started is None or past.started > now]
    waiting = [past for past in waiting if past.ended is None or past.ended > now]
    runs: dict[str, list[float]] = {}
    for past in earlier:
        if past.started is not None and past.ended is not None and past.ended <= now:
            runs.setdefault(past.program, []).append(past.ended - past.started)
    free = dict(capacity)
    for past in running:
        for name, amount in past.needs.items():
            free[name] = free.get(name, 0.0) - amount
    return queue_wait.Queue(
        free=free,
        running=tuple(
            queue_wait.Running(
                elapsed_seconds=now - (past.started or now),
                holds=past.needs,
                owner=past.owner,
                durations=tuple(runs.get(past.program, ())[-_MOST_RUNS:]),
                deadline_seconds=past.deadline_seconds,
            )
            for past in running
        ),
        waiting=tuple(
            queue_wait.Waiting(
                needs=past.needs,
                priority=past.priority,
                owner=past.owner,
                durations=tuple(runs.get(past.program, ())[-_MOST_RUNS:]),
                deadline_seconds=past.deadline_seconds,
            )
            for past in (*waiting, job)
        ),
        strict=strict,
        fair=fair,
    )


def _most_held(known: Sequence[PastJob]) -> dict[str, float]:
    changes: list[tuple[float, int, queue_wait.Amounts]] = []
    for past in known:
        if past.started is not None:
            changes.append((past.started, 1, past.needs))
            changes += [(past.ended, -1, past.needs)] if past.ended is not None else []
    held: dict[str, float] = {}
    most: dict[str, float] = {}
    # At the same time, ends (-1) come before starts.
    for _, sign, amounts in sorted(changes, key=lambda change: (change[0], change[1])):
        for name, amount in amounts.items():
            held[name] = held.get(name, 0.0) + sign * amount
            most[name] = max(most.get(name, 0.0), held[name])
    return most


def accuracy(outcomes: Sequence[Outcome]) -> Accuracy:
    """Return how far estimates were from the real waits.

    >>> from mpijob.model.status.forecast import Forecast
    >>> ref = JobRef("cv", "train")
    >>> estimate = Forecast(1, 60.0, (30.0, 90.0))
    >>> accuracy([Outcome(ref=ref, queue="", forecast=estimate, waited_seconds=80.0)]).median_seconds
    20.0
    """
    signed = [outcome.error_seconds for outcome in outcomes if outcome.error_seconds is not None]
    errors = sorted(abs(error) for error in signed)
    shares = sorted(
        abs(outcome.error_seconds) / max(outcome.waited_seconds, LEAST_WAIT_SECONDS) * 100
        for outcome in outcomes
        if outcome.error_seconds is not None
    )
    ranged = [outcome for outcome in outcomes if outcome.within is not None]
    return Accuracy(
        jobs=len(outcomes),
        estimated=len(signed),
        ranged=len(ranged),
        within=sum(bool(outcome.within) for outcome in ranged),
        late=sum(
            outcome.forecast.span is not None and outcome.waited_seconds > outcome.forecast.span[1]
            for outcome in ranged
        ),
        median_seconds=queue_wait.quantile(errors, 0.5) if errors else None,
        ninetieth_seconds=queue_wait.quantile(errors, 0.9) if errors else None,
        median_percent=queue_wait.quantile(shares, 0.5) if shares else None,
        bias_seconds=queue_wait.quantile(sorted(signed), 0.5) if signed else None,
    )
