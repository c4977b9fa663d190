"""Filter, sort, count and page the rows that the board holds. Pure; the board does the watching.

Pages are stable: a cursor is the sort key, uid and namespace of the last row shown, so rows that come or go meanwhile
neither repeat nor hide others. It also says when the first page was made, for what grows with time is told as of then.
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
    """Behind which row a page begins, and when the first page was made."""

    key: Key
    now: float


def page(rows: Iterable[JobRow], query: ListQuery, *, rev: str, now: float, seen: float = 0.0) -> JobList:
    """Return one page of the rows that a query asks for."""
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
    """Return the rows that a query asks for, the filter by phase left out; each filter goes over the rows once."""
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
    """Return how long a job had run at a time, whatever became of it since."""
    if row.started is None or row.started > now:
        return -1.0
    return min(row.held_until(now), now) - row.started


def _key(sort: str, now: float) -> Callable[[JobRow], Key]:
    """Return the sort key of a row; uid and namespace make every key different."""
    name = sort.removeprefix("-")
    if name == "duration":
        return lambda row: (_duration(row, now), row.uid, row.namespace)
    return attrgetter(name, "uid", "namespace")


def _after(
    rows: Sequence[JobRow], key: Callable[[JobRow], Key], query: ListQuery, last: _Position | None
) -> Sequence[JobRow]:
    """Return the rows behind the cursor, in no order."""
    if last is None:
        return rows
    if query.sort.startswith("-"):
        return [row for row in rows if key(row) < last.key]
    return [row for row in rows if key(row) > last.key]


def _cursor(key: Key, now: float) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode((*key, now))).decode().rstrip("=")


def _position(query: ListQuery) -> _Position:
    """Return what a cursor says; one that was made for another order is refused."""
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
