"""When a recurring job is due: cron expressions read on a wall clock in a time zone.

The arithmetic of dates and of summer time is cronsim's, which follows Debian's cron. Only what Kubernetes
understands as well is taken, so that a schedule means the same on a laptop and on a cluster. Without a zone, UTC
counts; whoever makes a schedule may know the zone of the place.
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
_LONGEST_NAME = 36  # with the minute behind it, a worker's name still fits into 63 letters
_SOONEST_SECONDS = 10.0  # Kubernetes looks at its clock that often
_FORM = "write five fields: minute, hour, day of month, month, day of week, as in '30 2 * * *', or @daily"
_MOST_MISSED = 100


class Due(NamedTuple):
    """A start that is due: its moment, and how many before it were missed (counted up to 100)."""

    moment: float
    missed: int


def refuse(schedule: Schedule) -> None:
    """Raise InvalidJob with everything that is wrong about when the job recurs."""
    findings = [*_wrong(schedule)]
    if findings:
        raise InvalidJob.of(tuple(findings), "the schedule")
    if next(_moments(schedule, 0.0), None) is None:
        raise InvalidJob.of((_finding("when", f"{schedule.when!r} matches no date", _FORM),), "the schedule")


def _wrong(schedule: Schedule) -> Iterator[Finding]:
    if not _NAME.fullmatch(schedule.name) or len(schedule.name) > _LONGEST_NAME:
        rule = f"use lowercase letters, digits and hyphens, beginning with a letter, at most {_LONGEST_NAME}"
        yield _finding("name", f"{schedule.name!r} cannot be the name of a schedule", rule)
    words = _MACROS.get(schedule.when.strip(), schedule.when).split()
    if len(words) != 5 or re.search(r"[#?]|[0-9*]L|\bLW?\b", schedule.when.upper()):
        yield _finding("when", f"{schedule.when!r} is not a cron expression that all engines support", _FORM)
    elif (wrong := _unreadable(" ".join(words))) is not None:
        yield _finding("when", f"{schedule.when!r}: {wrong}", _FORM)
    if _zone(schedule.time_zone) is None:
        hint = "use a name of the IANA database, such as Europe/Berlin or Etc/UTC"
        yield _finding("time_zone", f"there is no time zone {schedule.time_zone!r}", hint)
    late = schedule.start_within_seconds
    if late is not None and late < _SOONEST_SECONDS:
        message = f"{late:g} s is too short as the delay for a missed start"
        yield _finding("start_within_seconds", message, f"use at least {_SOONEST_SECONDS:g}")


def _finding(field: str, message: str, hint: str) -> Finding:
    return Finding(code="INVALID_SCHEDULE", field=field, message=message, hint=hint)


def _unreadable(expression: str) -> str | None:
    """Return what is wrong with an expression of five fields."""
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
    except (OSError, ValueError, KeyError):  # not there, not a name, not in the database
        return None


def expression(schedule: Schedule) -> str:
    """Return the schedule's five fields."""
    return _MACROS.get(schedule.when.strip(), schedule.when.strip())


def following(schedule: Schedule, after: float, count: int = 1) -> tuple[float, ...]:
    """Return the next moments at which the job is due."""
    return tuple(islice(_moments(schedule, after), count))


def _moments(schedule: Schedule, after: float) -> Iterator[float]:
    zone = _zone(schedule.time_zone) or UTC
    clock = _library().CronSim(expression(schedule), datetime.fromtimestamp(after, zone))
    for moment in clock:
        yield moment.timestamp()


def due(schedule: Schedule, since: float, now: float) -> Due | None:
    """Return the newest moment after `since` that has come, if any has; the ones before it were missed."""
    zone = _zone(schedule.time_zone) or UTC
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
    """Whether a start was missed by more than the schedule makes up for."""
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
