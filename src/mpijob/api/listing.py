"""Filter, sort, count and page the rows that the board holds. Pure; the board does the watching.

Pages are stable: a cursor is the sort key and uid of the last row shown, so rows that come or go meanwhile
neither repeat nor hide others.
"""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from mpijob.api.answers import JobList, JobRow, ListQuery
from mpijob.errors import InvalidJob

Key = tuple[Any, str]


def page(rows: Iterable[JobRow], query: ListQuery, *, rev: str, now: float) -> JobList:
    """Return one page of the rows that a query asks for."""
    rows = tuple(rows)
    matching = [row for row in rows if _matches(row, query)]
    chosen = [row for row in matching if not query.status or row.phase in query.status]
    keyed = _sorted(chosen, query.sort, now)
    later = _after(keyed, query)
    items = tuple(row for _, row in later[: query.limit])
    more = len(later) > query.limit
    return JobList(
        items=items,
        total=len(chosen),
        counts=dict(Counter(row.phase.value for row in matching)),
        namespaces=tuple(sorted({row.namespace for row in rows})),
        after=_cursor(later[query.limit - 1][0]) if more else "",
        rev=rev,
    )


def _matches(row: JobRow, query: ListQuery) -> bool:
    return (
        (not query.namespace or row.namespace == query.namespace)
        and (not query.type or row.kind in query.type)
        and (not query.owner or row.owner == query.owner)
        and (not query.queue or row.queue == query.queue)
        and (query.since is None or row.created >= query.since)
        and (query.until is None or row.created <= query.until)
        and (not query.text or _mentions(row, query.text.casefold()))
    )


def _mentions(row: JobRow, text: str) -> bool:
    return any(text in part.casefold() for part in (row.name, row.owner, row.uid, row.why, row.queue))


def _duration(row: JobRow, now: float) -> float:
    if row.started is None:
        return -1.0
    return (now if row.finished is None else row.finished) - row.started


_KEYS: dict[str, Callable[[JobRow, float], Any]] = {
    "created": lambda row, now: row.created,
    "name": lambda row, now: row.name,
    "phase": lambda row, now: row.phase.value,
    "duration": _duration,
}


def _sorted(rows: Iterable[JobRow], sort: str, now: float) -> list[tuple[Key, JobRow]]:
    key = _KEYS[sort.removeprefix("-")]
    keyed = [((key(row, now), row.uid), row) for row in rows]
    keyed.sort(key=lambda pair: pair[0], reverse=sort.startswith("-"))
    return keyed


def _after(keyed: list[tuple[Key, JobRow]], query: ListQuery) -> list[tuple[Key, JobRow]]:
    if not query.after:
        return keyed
    last = _position(query.after, like=keyed[0][0] if keyed else None)
    if query.sort.startswith("-"):
        return [pair for pair in keyed if pair[0] < last]
    return [pair for pair in keyed if pair[0] > last]


def _cursor(key: Key) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(key)).decode().rstrip("=")


def _position(cursor: str, *, like: Key | None) -> Key:
    """Return the key in a cursor; one that was made for another order is refused."""
    try:
        raw = base64.urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        kind = str if like is not None and isinstance(like[0], str) else float
        key: Key = msgspec.json.decode(raw, type=tuple[kind, str])  # type: ignore[valid-type]  # chosen at run time
    except (binascii.Error, UnicodeError, msgspec.DecodeError) as error:
        raise InvalidJob(
            f"after: {cursor!r} is not a cursor of this list", hint="begin at the first page"
        ) from error
    return key
