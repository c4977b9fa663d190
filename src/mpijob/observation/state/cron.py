"""Finds when a recurring job is due: cron expressions evaluated in a time zone.

The arithmetic of dates and daylight saving time is that of the library cronsim, which follows Debian's cron.
Only what Kubernetes also accepts is allowed, so that a schedule means the same on a laptop and on a cluster.
Without a time zone, UTC is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from itertools import islice
from typing import NamedTuple

from mpijob.errors import Finding, InvalidJob, Unsupported
from mpijob.model.spec.schedule import Schedule

_MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
# With the minute of the start appended, a worker's name still fits into 63 characters.
_LONGEST_NAME = 36
# Kubernetes checks its schedules this often: with a shorter limit it may never start a job.
_SOONEST_SECONDS = 10.0
_FORM = "write five fields: minute, hour, day of month, month, day of week, as in '30 2 * * *', or @daily"
_MOST_MISSED = 100


class Due(NamedTuple):
    """A start that is due: its time, and the number of missed starts before it (counted up to 100)."""

    moment: float
    missed: int


def refuse(schedule: Schedule) -> None:
    """Raise InvalidJob with all faults of a schedule."""
    findings = [*_faults(schedule)]
    if findings:
        raise InvalidJob.of(tuple(findings), "the schedule")
    if next(_moments(schedule, 0.0), None) is None:
        raise InvalidJob.of((_finding("when", f"{schedule.when!r} matches no date", _FORM),), "the schedule")


def _faults(schedule: Schedule) -> Iterator[Finding]:
    if not _NAME.fullmatch(schedule.name) or len(schedule.name) > _LONGEST_NAME:
        rule = f"use lowercase letters, digits and hyphens, beginning with a letter, at most {_LONGEST_NAME}"
        yield _finding("name", f"{schedule.name!r} cannot be the name of a schedule", rule)
    words = _MACROS.get(schedule.when.strip(), schedule.when).split()
    # cronsim accepts `#`, `L` and `LW`, Kubernetes accepts `?`; neither accepts the other's.
    if len(words) != 5 or re.search(r"[#?]|[0-9*]L|\bLW?\b", schedule.when.upper()):
        yield _finding("when", f"{schedule.when!r} is not a cron expression that all engines support", _FORM)
    elif (error := _parse_error(" ".join(words))) is not None:
        yield _finding("when", f"{schedule.when!r}: {error}", _FORM)
    if _zone(schedule.time_zone) is None:
        hint = "use a name of the IANA database, such as Europe/Berlin or Etc/UTC"
        yield _finding("time_zone", f"there is no time zone {schedule.time_zone!r}", hint)
    limit = schedule.start_within_seconds
    if limit is not None and limit < _SOONEST_SECONDS:
        message = f"{limit:g} s is too short as the delay for a missed start"
        yield _finding("start_within_seconds", message, f"use at least {_SOONEST_SECONDS:g}")


def _finding(field: str, message: str, hint: str) -> Finding:
    return Finding(code="INVALID_SCHEDULE", field=field, message=message, hint=hint)


def _parse_error(expression: str) -> str | None:
    library = _library()
    try:
        library.CronSim(expression, datetime(2000, 1, 1, tzinfo=UTC))
    except library.CronSimError as error:
        text = str(error).lower()
        return f"the {text.removeprefix('bad ')} cannot be read" if text.startswith("bad ") else text
    return None


def _zone(name: str) -> tzinfo | None:
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name) if name else UTC
    # A directory or missing file, an invalid name, a name that is not in the database.
    except (OSError, ValueError, KeyError):
        return None


def expression(schedule: Schedule) -> str:
    return _MACROS.get(schedule.when.strip(), schedule.when.strip())


def following(schedule: Schedule, after: float, count: int = 1) -> tuple[float, ...]:
    """Return the next times at which the job is due, in seconds since the epoch."""
    return tuple(islice(_moments(schedule, after), count))


def _moments(schedule: Schedule, after: float) -> Iterator[float]:
    zone = _zone(schedule.time_zone) or UTC
    clock = _library().CronSim(expression(schedule), datetime.fromtimestamp(after, zone))
    for moment in clock:
        yield moment.timestamp()


def due(schedule: Schedule, since: float, now: float) -> Due | None:
    """Return the newest start after `since` that is due, if any; earlier ones count as missed."""
    zone = _zone(schedule.time_zone) or UTC
    # Backwards from the next second: `reverse` excludes the start time itself.
    back = _library().CronSim(expression(schedule), datetime.fromtimestamp(int(now) + 1, zone), reverse=True)
    newest = next(back, None)
    if newest is None or newest.timestamp() <= since:
        return None
    moment, missed = newest.timestamp(), 0
    for earlier in back:
        if earlier.timestamp() <= since or missed == _MOST_MISSED:
            break
        missed += 1
    return Due(moment, missed)


def is_too_late(schedule: Schedule, moment: float, now: float) -> bool:
    """Return whether a start was missed by more than `start_within_seconds`."""
    allowed = schedule.start_within_seconds
    return allowed is not None and now - moment > allowed


class _Library(NamedTuple):
    CronSim: type
    CronSimError: type[Exception]


def _library() -> _Library:
    try:
        from cronsim import CronSim, CronSimError
    except ImportError as error:
        raise Unsupported(
            "recurring jobs need a library that reads cron expressions, and it is not installed",
            hint="pip install 'mpijob[schedule]'",
        ) from error
    return _Library(CronSim, CronSimError)
