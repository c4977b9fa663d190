"""Filter, sort, count and page the rows that the board holds. Pure; the board does the watching.

Pages are stable: a cursor is the sort key and uid of the last row shown, so rows that come or go meanwhile
neither repeat nor hide others.
"""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from mpijob import shapes
from mpijob.api.answers import JobList, JobRow, ListQuery
from mpijob.errors import InvalidJob

Key = tuple[Any, str]

_PHASE = attrgetter("phase")


def page(rows: Iterable[JobRow], query: ListQuery, *, rev: str, now: float, seen: float = 0.0) -> JobList:
    """Return one page of the rows that a query asks for."""
    rows = tuple(rows)
    matching = _matching(rows, query)
    chosen = [row for row in matching if row.phase in query.status] if query.status else matching
    key = _key(query.sort, now)
    later = sorted(_after(chosen, key, query), key=key, reverse=query.sort.startswith("-"))
    return JobList(
        items=tuple(later[: query.limit]),
        total=len(chosen),
        counts={phase.value: count for phase, count in Counter(map(_PHASE, matching)).items()},
        namespaces=_all(rows, "namespace"),
        owners=_all(rows, "owner"),
        types=_all(rows, "kind"),
        after=_cursor(key(later[query.limit - 1])) if len(later) > query.limit else "",
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
        rows = [row for row in rows if row.owner == query.owner]
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
    if row.started is None:
        return -1.0
    return (row.released or row.finished or now) - row.started


def _key(sort: str, now: float) -> Callable[[JobRow], Key]:
    """Return the sort key of a row; the uid makes every key different."""
    name = sort.removeprefix("-")
    if name == "duration":
        return lambda row: (_duration(row, now), row.uid)
    return attrgetter(name, "uid")


def _after(rows: Sequence[JobRow], key: Callable[[JobRow], Key], query: ListQuery) -> Sequence[JobRow]:
    """Return the rows behind the cursor, in no order."""
    if not query.after or not rows:
        return rows
    last = _position(query.after, like=key(rows[0]))
    if query.sort.startswith("-"):
        return [row for row in rows if key(row) < last]
    return [row for row in rows if key(row) > last]


def _cursor(key: Key) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(key)).decode().rstrip("=")


def _position(cursor: str, *, like: Key) -> Key:
    """Return the key in a cursor; one that was made for another order is refused."""
    try:
        raw = base64.urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        kind = str if isinstance(like[0], str) else float
        key: Key = shapes.decode(raw, tuple[kind, str])  # type: ignore[valid-type]  # chosen at run time
    except (binascii.Error, UnicodeError, msgspec.DecodeError) as error:
        raise InvalidJob(
            f"after: {cursor!r} is not a cursor of this list", hint="begin at the first page"
        ) from error
    return key
