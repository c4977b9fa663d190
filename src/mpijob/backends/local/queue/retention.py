"""Retention: deletion of finished jobs and logs after the days that their namespace or spec sets, or `ttl_seconds`.

Runners do this when they have no job to run. With `ttl_seconds`, jobs are deleted as by `mpijob delete`: the archive
keeps their records. After the days of retention, only the account is kept.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator

from mpijob.backends.local.queue.store import Row, Store
from mpijob.errors import NotFound
from mpijob.history.retention import RetentionSettings
from mpijob.settings import Settings

_DAY = 86_400.0
# At most so many jobs in one call, so that a new job does not wait for long.
_BATCH = 200
# A directory without a job may belong to one that is being submitted.
_MIN_AGE_SECONDS = 3600.0


def apply_retention(
    store: Store,
    now: float,
    policy: RetentionSettings | None = None,
    before_removal: Callable[[str], None] = lambda uid: None,
) -> int:
    """Remove jobs and logs after their time, the oldest first; return the number of jobs concerned.

    `before_removal` is called with the uid of each job that will be removed.
    """
    policy = RetentionSettings() if policy is None else policy
    final = "phase IN ('Succeeded','Failed','Cancelled') AND holds=0"
    rows = store.rows(f"{final} AND seq IN (SELECT seq FROM jobs WHERE {final} ORDER BY seq LIMIT {_BATCH})")
    _remove_orphaned(store, now)
    count = 0
    for row in rows:
        # It may be deleted meanwhile.
        with contextlib.suppress(NotFound):
            count += _apply(store, row, now, policy, before_removal)
    return count


def delete_expired(store: Store, settings: Settings, now: float) -> float | None:
    """Delete jobs whose `ttl_seconds` are over; return the seconds until the next is due, None for none."""
    due_in = None
    for row, seconds in _expiring(store, now):
        if seconds <= 0:
            from mpijob.backends.local.queue import lifecycle

            lifecycle.remove(store, store.home, settings, row, alone=True)
        else:
            due_in = seconds if due_in is None else min(seconds, due_in)
    return due_in


def has_expired(store: Store, now: float) -> bool:
    return any(seconds <= 0 for _, seconds in _expiring(store, now))


def _expiring(store: Store, now: float) -> Iterator[tuple[Row, float]]:
    """Yield the finished jobs with `ttl_seconds`, each with the seconds left."""
    where = "ttl IS NOT NULL AND phase IN ('Succeeded','Failed','Cancelled') AND holds=0"
    ttl = dict(store.read(f"SELECT uid, ttl FROM jobs WHERE {where}"))
    for row in store.rows(where) if ttl else ():
        if row.uid in ttl:
            yield row, (row.state.finished or now) + ttl[row.uid] - now


def _remove_orphaned(store: Store, now: float) -> None:
    # The process that deleted the job was killed after it had removed the row (`lifecycle.remove`).
    jobs = store.home.root / "jobs"
    known = {uid for (uid,) in store.read("SELECT uid FROM jobs")}
    for directory in jobs.iterdir() if jobs.is_dir() else ():
        if directory.name not in known and now - directory.stat().st_mtime > _MIN_AGE_SECONDS:
            shutil.rmtree(directory, ignore_errors=True)


def _apply(
    store: Store, row: Row, now: float, policy: RetentionSettings, before_removal: Callable[[str], None]
) -> bool:
    keep = policy.days_for(row.state.ref.namespace, store.plan(row.uid).job)
    age_days = (now - (row.state.finished or now)) / _DAY
    if age_days >= keep.record_days:
        before_removal(row.uid)
        store.remove(row.uid)
        shutil.rmtree(store.home.job(row.uid), ignore_errors=True)
        return True
    directory = store.home.job(row.uid)
    if age_days >= keep.logs_days and directory.exists():
        for attempt in directory.glob("a*"):
            shutil.rmtree(attempt, ignore_errors=True)
        return True
    return False
