"""Retention of the audit log: whole days are removed, never before ninety, and the chain records it.

The entry that records a removal names the last removed line with its hash. The first remaining line is
chained to that line, so this differs from a beginning that somebody removed by hand.
"""

from __future__ import annotations

import itertools
import os
import time

from mpijob.errors import InvalidJob
from mpijob.history.audit import chain
from mpijob.model.status.audit import COMPLETE, DOMAIN, AuditEvent, ResponseStatus, User, Verb, stamp

MIN_DAYS = 90.0
_DAY_SECONDS = 86_400.0


def check_days(requested: float) -> float:
    """Return the number of days to keep; reject fewer than the minimum."""
    if requested < MIN_DAYS:
        raise InvalidJob(
            f"audit_days is {requested:g}; the audit is kept for at least {MIN_DAYS:g} days",
            hint=f"set audit_days to {MIN_DAYS:g} or more",
        )
    return requested


def expired_files(directory: str, today: str, keep_days: float) -> list[str]:
    """Return the files whose last entry is older than `keep_days` when a day's file begins."""
    # Used once a day.
    from datetime import date, timedelta

    # Ages count from the last day with an entry, and a file written to recently stays: one entry made while
    # the clock was years ahead must not remove everything.
    days_to_keep = max(keep_days, MIN_DAYS)
    earlier = [name for name in chain.daily_files(directory) if name < today]
    if not earlier:
        return []
    newest = date.fromisoformat(earlier[-1].removeprefix("audit-").removesuffix(".jsonl"))
    first_kept = f"audit-{(newest - timedelta(days=days_to_keep + 1)).isoformat()}.jsonl"
    oldest_write = time.time() - days_to_keep * _DAY_SECONDS

    def is_expired(name: str) -> bool:
        return name < first_kept and os.stat(os.path.join(directory, name)).st_mtime < oldest_write

    # Without a gap: the entries that stay must follow the last removed one.
    return [*itertools.takewhile(is_expired, earlier)]


def prune_event(directory: str, removed: list[str], keep_days: float) -> AuditEvent:
    """Return the entry that records which days were removed, and the last removed line."""
    last = chain.Head()
    for name in removed:
        with open(os.path.join(directory, name), "rb") as file:
            for line in file:
                line = line.rstrip(b"\n")
                if (split := chain.split_hash(line)) is not None and (number := chain.sequence_of(line)):
                    last = chain.Head(number, split[1])
    now = stamp(time.time())
    return AuditEvent(
        kind="Event",
        api_version="audit.k8s.io/v1",
        level="Metadata",
        audit_id=chain.new_id(),
        stage=COMPLETE,
        verb=Verb.PRUNE,
        user=User(username="system:mpijob:retention"),
        response_status=ResponseStatus(status="Success", code=200),
        received=now,
        time=now,
        annotations={
            f"{DOMAIN}/files": f"{removed[0]} to {removed[-1]}" if len(removed) > 1 else removed[0],
            f"{DOMAIN}/removed-up-to": str(last),
            f"{DOMAIN}/kept-days": f"{max(keep_days, MIN_DAYS):g}",
        },
    )
