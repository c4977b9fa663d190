"""The overview page, from the rows of the job index: waiting jobs, usage by owner, common failures. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from statistics import median

from mpijob.api.live import rows as as_row
from mpijob.api.schemas.job_schemas import JobRow
from mpijob.api.schemas.overview_schemas import Overview, Pattern, Share, Waiting
from mpijob.diagnosis import patterns
from mpijob.errors import Finding
from mpijob.model import Facts, JobRef, JobState, Phase

_PATTERNS, _SHARES = 10, 20


def overview(
    rows: Iterable[JobRow], queued: Iterable[JobState], facts: Facts, room: str, *, now: float
) -> Overview:
    rows = tuple(rows)
    waits = [row.started - row.created for row in rows if row.started is not None]
    return Overview(
        facts=facts,
        room=room,
        waiting=waiting(queued),
        counts=dict(Counter(row.phase.value for row in rows)),
        owners=_shares(rows, lambda row: row.owner, now),
        namespaces=_shares(rows, lambda row: row.namespace, now),
        patterns=_patterns(rows),
        waited_seconds=median(waits) if waits else None,
    )


def waiting(queued: Iterable[JobState]) -> tuple[Waiting, ...]:
    """Return the waiting jobs, in queue order."""
    found = [
        Waiting(
            as_row.row(one),
            one.queue_position,
            one.wait_estimate_seconds,
            one.wait_range_seconds,
            one.wait_basis,
        )
        for one in queued
    ]
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
    """Return worker-seconds: the run time times the number of workers."""
    if row.started is None:
        return 0.0
    return max(0.0, row.held_until(now) - row.started) * row.workers


def _patterns(rows: tuple[JobRow, ...]) -> tuple[Pattern, ...]:
    """Return common causes of failed jobs, as `mpijob patterns` does."""
    failed = sorted((row for row in rows if row.phase is Phase.FAILED), key=lambda row: row.finished or 0.0)
    newest = {f"{row.namespace}/{row.name}": row for row in failed}
    until = failed[-1].finished or 0.0 if failed else 0.0
    found = patterns.find(map(_as_state, failed), since=0.0, until=until, least=1).patterns
    return tuple(Pattern(one.code, one.count, newest[one.jobs[0]]) for one in found[:_PATTERNS])


def _as_state(row: JobRow) -> JobState:
    """Return a failed job's row as the state that `patterns` reads."""
    ref = JobRef(row.namespace, row.name, row.uid)
    findings = (Finding(row.cause, row.why),) if row.cause else ()
    return JobState(ref=ref, phase=row.phase, owner=row.owner, finished=row.finished, findings=findings)
