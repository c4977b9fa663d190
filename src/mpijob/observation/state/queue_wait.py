"""How long a queued job will probably wait: an honest range from history, or nothing at all.

We let the queue play out three times, with jobs as short, as usual and as long as finished jobs were,
and say when ours would start. The order is the queue's own; what a later, higher job would change is
not guessed. Whether it may wait at all is decided by `admission`.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import msgspec

from mpijob.model import Amounts

LOW, MIDDLE, HIGH = 0.1, 0.5, 0.9

_End = tuple[float, int, Amounts]


class Running(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job that holds resources now; its deadline counts from its start.

    `own` are durations of earlier runs of the same program, where those are told apart.
    """

    elapsed_seconds: float
    holds: Amounts
    deadline_seconds: float | None = None
    own: tuple[float, ...] | None = None


class Waiting(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job in the queue; `own` as for one that runs."""

    needs: Amounts
    deadline_seconds: float | None = None
    own: tuple[float, ...] | None = None


class Estimate(msgspec.Struct, frozen=True):
    """The probable wait in seconds, its range, and how many finished jobs it rests on."""

    seconds: float
    low: float
    high: float
    sample_size: int


def estimate(
    job: Waiting,
    *,
    free: Amounts,
    finished: Sequence[float],
    running: Sequence[Running] = (),
    ahead: Sequence[Waiting] = (),
) -> Estimate | None:
    """Return when the job would start, or None when nothing is known that would tell.

    `finished` holds the durations of ended jobs in seconds; `ahead` is the queue before the job, the
    next one first.
    """
    durations = sorted(duration for duration in finished if duration >= 0)
    waits = [_start(job, free, durations, running, ahead, share) for share in (MIDDLE, LOW, HIGH)]
    known = [wait for wait in waits if wait is not None]
    if len(known) < len(waits):
        return None
    return Estimate(known[0], min(known), max(known), len(durations))


def _start(
    job: Waiting,
    free: Amounts,
    durations: Sequence[float],
    running: Sequence[Running],
    ahead: Sequence[Waiting],
    share: float,
) -> float | None:
    """Return when the job starts if every job takes as long as this share of finished ones."""
    ends = _ends(running, durations, share)
    now, count = 0.0, len(ends)
    for waiting in (*ahead, job):
        while not waiting.needs.fits(free):
            if not ends:
                return None
            now, _, released = heapq.heappop(ends)
            free = free.plus(released)
        free, count = free.minus(waiting.needs), count + 1
        known = durations if waiting.own is None else sorted(waiting.own)
        if (lasts := _lasts(waiting.deadline_seconds, known, share)) is not None:
            heapq.heappush(ends, (now + lasts, count, waiting.needs))
    return now


def _ends(running: Sequence[Running], durations: Sequence[float], share: float) -> list[_End]:
    rests = [_remaining(one, durations if one.own is None else sorted(one.own), share) for one in running]
    ends = [(rest, at, running[at].holds) for at, rest in enumerate(rests) if rest is not None]
    heapq.heapify(ends)
    return ends


def _remaining(one: Running, durations: Sequence[float], share: float) -> float | None:
    """Return how long a running job will still run, judged by those that ran at least as long."""
    longer = [duration - one.elapsed_seconds for duration in durations if duration > one.elapsed_seconds]
    left = None if one.deadline_seconds is None else max(0.0, one.deadline_seconds - one.elapsed_seconds)
    if longer:
        rest = quantile(longer, share)
        return rest if left is None else min(rest, left)
    if left is not None:
        return left
    return (
        one.elapsed_seconds * 2 * share if durations else None
    )  # longer than any before: about as long again


def _lasts(deadline_seconds: float | None, durations: Sequence[float], share: float) -> float | None:
    if not durations:
        return deadline_seconds
    usual = quantile(durations, share)
    return usual if deadline_seconds is None else min(usual, deadline_seconds)


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which this share of an ordered, non-empty sample lies."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
