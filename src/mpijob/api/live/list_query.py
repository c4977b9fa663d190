"""Filter, sort, count and page the rows of the job index. Pure.

Pages are stable: a cursor is the sort key, uid and namespace of the last row, so that new or deleted rows
neither repeat nor hide others. It also has the time of the first page, as of which durations are computed:
they grow.
"""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from mpijob import codec
from mpijob.api.schemas.job_schemas import JobList, JobRow, ListQuery
from mpijob.errors import InvalidJob

Key = tuple[Any, str, str]

_PHASE = attrgetter("phase")
_NUMBERS = ("created", "duration")


class _Position(NamedTuple):
    """The last row before a page, and the time of the first page."""

    key: Key
    now: float


def page(rows: Iterable[JobRow], query: ListQuery, *, rev: str, now: float, seen: float = 0.0) -> JobList:
    rows = tuple(rows)
    matching = _matching(rows, query)
    chosen = [row for row in matching if row.phase in query.status] if query.status else matching
    last = _position(query) if query.after else None
    now = now if last is None else last.now
    key = _key(query.sort, now)
    later = sorted(_after(chosen, key, query, last), key=key, reverse=query.sort.startswith("-"))
    return JobList(
        items=tuple(later[: query.limit]),
        total=len(chosen),
        counts={phase.value: count for phase, count in Counter(map(_PHASE, matching)).items()},
        namespaces=_all(rows, "namespace"),
        owners=_all(rows, "owner"),
        types=_all(rows, "kind"),
        after=_cursor(key(later[query.limit - 1]), now) if len(later) > query.limit else "",
        rev=rev,
        seen=seen,
    )


def _all(rows: tuple[JobRow, ...], field: str) -> tuple[str, ...]:
    return tuple(sorted(set(map(attrgetter(field), rows))))


def _matching(rows: Sequence[JobRow], query: ListQuery) -> Sequence[JobRow]:
    """Apply all filters but the phase: the counts by phase are over these rows."""
    if query.namespace:
        rows = [row for row in rows if row.namespace == query.namespace]
    if query.type:
        rows = [row for row in rows if row.kind in query.type]
    if query.owner:
        rows = [row for row in rows if row.owner in query.owner]
    if query.queue:
        rows = [row for row in rows if row.queue == query.queue]
    if (since := query.since) is not None:
        rows = [row for row in rows if row.created >= since]
    if (until := query.until) is not None:
        rows = [row for row in rows if row.created <= until]
    if query.text:
        text = query.text.casefold()
        rows = [row for row in rows if _mentions(row, text)]
    return rows


def _mentions(row: JobRow, text: str) -> bool:
    return any(text in part.casefold() for part in (row.name, row.owner, row.uid, row.why, row.queue))


def _duration(row: JobRow, now: float) -> float:
    """Return how long a job had run at a time; -1 if it had not started."""
    if row.started is None or row.started > now:
        return -1.0
    return min(row.held_until(now), now) - row.started


def _key(sort: str, now: float) -> Callable[[JobRow], Key]:
    """Return the sort key of rows; uid and namespace make it unique."""
    name = sort.removeprefix("-")
    if name == "duration":
        return lambda row: (_duration(row, now), row.uid, row.namespace)
    return attrgetter(name, "uid", "namespace")


def _after(
    rows: Sequence[JobRow], key: Callable[[JobRow], Key], query: ListQuery, last: _Position | None
) -> Sequence[JobRow]:
    """Return the rows after the cursor, unordered."""
    if last is None:
        return rows
    if query.sort.startswith("-"):
        return [row for row in rows if key(row) < last.key]
    return [row for row in rows if key(row) > last.key]


def _cursor(key: Key, now: float) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode((*key, now))).decode().rstrip("=")


def _position(query: ListQuery) -> _Position:
    """Decode a cursor; raise InvalidJob for one of another sort order."""
    cursor = query.after
    kind = float if query.sort.removeprefix("-") in _NUMBERS else str
    try:
        raw = base64.urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        value, uid, namespace, now = codec.decode(raw, tuple[kind, str, str, float])  # type: ignore[valid-type]  # chosen at run time
    except (binascii.Error, UnicodeError, msgspec.DecodeError) as error:
        raise InvalidJob(
            f"after: {cursor!r} is not a cursor of this list", hint="begin at the first page"
        ) from error
    return _Position((value, uid, namespace), now)
