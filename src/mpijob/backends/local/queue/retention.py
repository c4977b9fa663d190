"""Retention: finished jobs, their logs and records are kept as long as their namespace or spec says.

A runner does this when it has nothing else to do. Jobs with `ttl_seconds` are deleted as `mpijob delete` would: their
record goes into the archive. The runner stays until the last of them is due.
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
_BATCH = 200
_MIN_AGE_SECONDS = 3600.0  # a directory without a job may belong to one that is just being submitted


def apply_retention(
    store: Store,
    now: float,
    policy: RetentionSettings | None = None,
    farewell: Callable[[str], None] = lambda uid: None,
) -> int:
    """Remove what has been kept long enough, the oldest first; return how many jobs lost something.

    `farewell` is told each job that goes, before it does.
    """
    policy = RetentionSettings() if policy is None else policy
    final = "phase IN ('Succeeded','Failed','Cancelled') AND holds=0"
    rows = store.rows(f"{final} AND seq IN (SELECT seq FROM jobs WHERE {final} ORDER BY seq LIMIT {_BATCH})")
    _remove_orphaned(store, now)
    forgotten = 0
    for row in rows:
        with contextlib.suppress(NotFound):  # somebody has deleted it since we looked
            forgotten += _apply(store, row, now, policy, farewell)
    return forgotten


def delete_expired(store: Store, settings: Settings, now: float) -> float | None:
    """Delete the jobs whose `ttl_seconds` are over; return in how many seconds the next one is due, None for none."""
    due_in = None
    for row, seconds in _expiring(store, now):
        if seconds <= 0:
            from mpijob.backends.local.queue import lifecycle

            lifecycle.remove(store, store.home, settings, row, alone=True)
        else:
            due_in = seconds if due_in is None else min(seconds, due_in)
    return due_in


def has_expired(store: Store, now: float) -> bool:
    """Whether there is a job whose `ttl_seconds` are over."""
    return any(seconds <= 0 for _, seconds in _expiring(store, now))


def _expiring(store: Store, now: float) -> Iterator[tuple[Row, float]]:
    """Yield the finished jobs that have a `ttl_seconds`, each with the seconds that are left of it."""
    where = "ttl IS NOT NULL AND phase IN ('Succeeded','Failed','Cancelled') AND holds=0"
    ttl = dict(store.read(f"SELECT uid, ttl FROM jobs WHERE {where}"))
    for row in store.rows(where) if ttl else ():
        if row.uid in ttl:
            yield row, (row.state.finished or now) + ttl[row.uid] - now


def _remove_orphaned(store: Store, now: float) -> None:
    """Remove the directories of jobs that are gone: whoever deleted them was killed on the way."""
    jobs = store.home.root / "jobs"
    known = {uid for (uid,) in store.read("SELECT uid FROM jobs")}
    for directory in jobs.iterdir() if jobs.is_dir() else ():
        if directory.name not in known and now - directory.stat().st_mtime > _MIN_AGE_SECONDS:
            shutil.rmtree(directory, ignore_errors=True)


def _apply(
    store: Store, row: Row, now: float, policy: RetentionSettings, farewell: Callable[[str], None]
) -> bool:
    keep = policy.days_for(row.state.ref.namespace, store.plan(row.uid).job)
    age_days = (now - (row.state.finished or now)) / _DAY
    if age_days >= keep.record_days:
        farewell(row.uid)
        store.remove(row.uid)
        shutil.rmtree(store.home.job(row.uid), ignore_errors=True)
        return True
    directory = store.home.job(row.uid)
    if age_days >= keep.logs_days and directory.exists():
        for attempt in directory.glob("a*"):
            shutil.rmtree(attempt, ignore_errors=True)
        return True
    return False
