"""When a job that waits may start: from who runs, who is ahead, and how long jobs of this queue usually take.

Honest about what it does not know: the answer is a range, and there is none without a few jobs that ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

LEAST_ENDED = 3
_QUICK, _SLOW = 0.25, 0.75


class Held(msgspec.Struct, frozen=True):
    """A job that runs: since when, and what it holds by resource."""

    since: float
    amounts: Mapping[str, float]


def missing(
    wanted: Mapping[str, float], ahead: Mapping[str, float], free: Mapping[str, float]
) -> dict[str, float]:
    """Return what must come free before the job can start, those ahead served first; only what `free` counts."""
    short = {name: wanted.get(name, 0.0) + ahead.get(name, 0.0) - there for name, there in free.items()}
    return {name: amount for name, amount in short.items() if amount > 1e-9 and wanted.get(name)}


def wait_range(
    short: Mapping[str, float], running: Sequence[Held], durations: Sequence[float], now: float
) -> tuple[float, float] | None:
    """Return from when to when it may start, in seconds from now; None where nobody can tell."""
    if not short:
        return 0.0, 0.0
    if len(durations) < LEAST_ENDED:
        return None
    quick, slow = (_until(short, running, quantile(durations, share), now) for share in (_QUICK, _SLOW))
    if quick is None or slow is None:
        return None
    return quick, max(quick, slow)


def _until(short: Mapping[str, float], running: Sequence[Held], duration: float, now: float) -> float | None:
    """Return when enough is free if every job takes that long; one that is late already ends soon, we suppose."""
    left = dict(short)
    ends = [(max(0.0, one.since + duration - now), one) for one in running]
    for seconds, one in sorted(ends, key=lambda end: end[0]):
        left = {name: amount - one.amounts.get(name, 0.0) for name, amount in left.items()}
        if all(amount <= 1e-9 for amount in left.values()):
            return seconds
    return None


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which such a share of them lies."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
