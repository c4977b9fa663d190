"""How long the audit is kept: whole days go, never before ninety, and the chain tells that they went.

The entry that says goodbye names the last line that was removed, with its hash. The first line that stays is
chained to exactly that one, so a beginning that somebody cut off by hand is told apart from this.
"""

from __future__ import annotations

import itertools
import os
import time

from mpijob.errors import InvalidJob
from mpijob.history.audit import chain
from mpijob.model.status.audit import COMPLETE, DOMAIN, AuditEvent, ResponseStatus, User, Verb, stamp

LEAST_DAYS = 90.0
_DAY_SECONDS = 86_400.0


def days(wanted: float) -> float:
    """Return how many days are kept; refuse fewer than the least."""
    if wanted < LEAST_DAYS:
        raise InvalidJob(
            f"audit_days is {wanted:g}; the audit is kept for at least {LEAST_DAYS:g} days",
            hint=f"set audit_days to {LEAST_DAYS:g} or more",
        )
    return wanted


def due(directory: str, today: str, keep_days: float) -> list[str]:
    """Return the files whose last entry is older than so many days when a day's file begins.

    They count back from the last day before it on which something was done, and were not written to for as long: one
    act while a clock was years ahead, or told with such a time, removes nothing.
    """
    from datetime import date, timedelta  # once a day

    kept = max(keep_days, LEAST_DAYS)
    before = [name for name in chain.files(directory) if name < today]
    if not before:
        return []
    newest = date.fromisoformat(before[-1].removeprefix("audit-").removesuffix(".jsonl"))
    oldest, written = newest - timedelta(days=kept + 1), time.time() - kept * _DAY_SECONDS
    return [
        *itertools.takewhile(  # the chain goes on without a gap behind what is removed
            lambda name: (
                name < f"audit-{oldest.isoformat()}.jsonl"
                and os.stat(os.path.join(directory, name)).st_mtime < written
            ),
            before,
        )
    ]


def farewell(directory: str, gone: list[str], keep_days: float) -> AuditEvent:
    """Return the entry that tells which days are removed, and where the rest hangs on."""
    last = chain.Head()
    for name in gone:
        with open(os.path.join(directory, name), "rb") as file:
            for line in file:
                line = line.rstrip(b"\n")
                if (parts := chain.unsealed(line)) is not None and (number := chain.number_of(line)):
                    last = chain.Head(number, parts[1])
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
            f"{DOMAIN}/files": f"{gone[0]} to {gone[-1]}" if len(gone) > 1 else gone[0],
            f"{DOMAIN}/removed-up-to": str(last),
            f"{DOMAIN}/kept-days": f"{max(keep_days, LEAST_DAYS):g}",
        },
    )
