"""The place at a glance, from the rows of the board: who waits, who uses it, what fails. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from statistics import median

from mpijob.api import rows as as_row
from mpijob.api.answers import JobRow, Overview, Pattern, Share, Waiting
from mpijob.model import Facts, JobState, Phase

_PATTERNS, _SHARES = 10, 20


def overview(
    rows: Iterable[JobRow], queued: Iterable[JobState], facts: Facts, room: str, *, now: float
) -> Overview:
    """Return the place at a glance."""
    rows = tuple(rows)
    waits = [row.started - row.created for row in rows if row.started is not None]
    return Overview(
        facts=facts,
        room=room,
        waiting=_waiting(queued),
        counts=dict(Counter(row.phase.value for row in rows)),
        owners=_shares(rows, lambda row: row.owner, now),
        namespaces=_shares(rows, lambda row: row.namespace, now),
        patterns=_patterns(rows),
        waited_seconds=median(waits) if waits else None,
    )


def _waiting(queued: Iterable[JobState]) -> tuple[Waiting, ...]:
    found = [Waiting(as_row.row(one), one.queue_position, one.wait_estimate_seconds) for one in queued]
    return tuple(sorted(found, key=lambda one: (one.position or 1 << 30, one.row.created)))


def _shares(rows: tuple[JobRow, ...], of: Callable[[JobRow], str], now: float) -> tuple[Share, ...]:
    groups: dict[str, list[JobRow]] = {}
    for row in rows:
        groups.setdefault(of(row), []).append(row)
    made = (
        Share(
            name,
            jobs=len(own),
            going=sum(row.phase.active for row in own),
            failed=sum(row.phase is Phase.FAILED for row in own),
            busy_seconds=sum(_busy(row, now) for row in own),
        )
        for name, own in groups.items()
    )
    return tuple(sorted(made, key=lambda one: (-one.going, -one.jobs, one.name))[:_SHARES])


def _busy(row: JobRow, now: float) -> float:
    """Return the seconds that a job's workers ran, all together."""
    if row.started is None:
        return 0.0
    return max(0.0, (now if row.finished is None else row.finished) - row.started) * row.workers


def _patterns(rows: tuple[JobRow, ...]) -> tuple[Pattern, ...]:
    groups: dict[str, list[JobRow]] = {}
    for row in rows:
        if row.phase is Phase.FAILED:
            groups.setdefault(row.cause or "UNKNOWN", []).append(row)
    made = (Pattern(code, len(own), max(own, key=lambda row: row.created)) for code, own in groups.items())
    return tuple(sorted(made, key=lambda one: (-one.jobs, one.cause))[:_PATTERNS])
