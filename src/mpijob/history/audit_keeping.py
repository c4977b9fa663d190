"""How long the audit is kept: whole days go, never before ninety, and the chain tells that they went.

The entry that says goodbye names the last line that was removed, with its hash. The first line that stays is
chained to exactly that one, so a beginning that somebody cut off by hand is told apart from this.
"""

from __future__ import annotations

import os
import time

from mpijob.errors import InvalidJob
from mpijob.history import audit
from mpijob.model.audit import COMPLETE, DOMAIN, AuditEvent, ResponseStatus, User, Verb, stamp

LEAST_DAYS = 90.0


def days(wanted: float) -> float:
    """Return how many days are kept; refuse fewer than the least."""
    if wanted < LEAST_DAYS:
        raise InvalidJob(
            f"audit_days is {wanted:g}; the audit is kept for at least {LEAST_DAYS:g} days",
            hint=f"set audit_days to {LEAST_DAYS:g} or more",
        )
    return wanted


def due(directory: str, today: str, keep_days: float) -> list[str]:
    """Return the files whose last entry is older than so many days, as seen from a day's file."""
    from datetime import date, timedelta  # once a day

    newest = date.fromisoformat(today.removeprefix("audit-").removesuffix(".jsonl"))
    oldest = newest - timedelta(days=max(keep_days, LEAST_DAYS) + 1)
    return [name for name in audit.files(directory) if name < f"audit-{oldest.isoformat()}.jsonl"]


def farewell(directory: str, gone: list[str], keep_days: float) -> AuditEvent:
    """Return the entry that tells which days are removed, and where the rest hangs on."""
    last = audit.Head()
    for name in gone:
        with open(os.path.join(directory, name), "rb") as file:
            for line in file:
                line = line.rstrip(b"\n")
                if (parts := audit.unsealed(line)) is not None and (number := audit.number_of(line)):
                    last = audit.Head(number, parts[1])
    now = stamp(time.time())
    return AuditEvent(
        kind="Event",
        api_version="audit.k8s.io/v1",
        level="Metadata",
        audit_id=audit.new_id(),
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
