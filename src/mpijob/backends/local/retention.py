"""Forgetting in time: logs and records of finished jobs are kept as long as their spec says.

A runner does this when it has nothing else to do; nobody waits for it.
"""

from __future__ import annotations

import shutil

from mpijob.backends.local.store import Row, Store

_DAY = 86_400.0
_AT_ONCE = 200


def forget_old(store: Store, now: float) -> int:
    """Remove what has been kept long enough, the oldest first; return how many jobs lost something."""
    final = "phase IN ('Succeeded','Failed','Cancelled') AND holds=0"
    rows = store.rows(
        f"{final} AND seq IN (SELECT seq FROM jobs WHERE {final} ORDER BY seq LIMIT {_AT_ONCE})"
    )
    return sum(_forget(store, row, now) for row in rows)


def _forget(store: Store, row: Row, now: float) -> bool:
    keep = store.plan(row.uid).job.retention
    age_days = (now - (row.state.finished or now)) / _DAY
    if age_days >= keep.record_days:
        store.remove(row.uid)
        shutil.rmtree(store.home.job(row.uid), ignore_errors=True)
        return True
    directory = store.home.job(row.uid)
    if age_days >= keep.logs_days and directory.exists():
        for attempt in directory.glob("a*"):
            shutil.rmtree(attempt, ignore_errors=True)
        return True
    return False
