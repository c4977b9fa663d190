"""The archive of the local engine: records and logs of deleted jobs, which `history` reads.

Until a job is deleted, the engine's own files are its record.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mpijob.backends.attempts import archive
from mpijob.backends.local.logs import locations
from mpijob.history import retention
from mpijob.history.archive import Archive
from mpijob.history.records import Gap
from mpijob.model import Event
from mpijob.settings import LOCAL, Settings, history_directory

if TYPE_CHECKING:
    from mpijob.backends.local.queue.store import Row, Store


def archive_job(store: Store, row: Row, settings: Settings) -> None:
    """Write a finished job into the archive; call it before the job is removed."""
    archive.archive_job(row.state.ref, lambda: _ended_job(store, row), settings, LOCAL)


def _ended_job(store: Store, row: Row) -> archive.EndedJob:
    events = store.events(row.uid)
    return archive.EndedJob(
        state=row.state,
        plan=store.plan(row.uid),
        newest=store.home.attempt(row.uid, row.attempt),
        logs=locations.log_directories(store.home, row),
        events=events,
        samples=store.samples(row.uid),
        gaps=tuple(_gaps(store, row, events)),
        attempts=tuple(store.attempts(row.uid)),
    )


def archive_account(store: Store, uid: str, settings: Settings, now: float) -> None:
    """Write a job's account into the archive; call it before retention removes the job."""
    from mpijob.backends.local.storage import accounts
    from mpijob.history import account_store

    account = accounts.job_account(store, uid, now)
    job_archive = Archive(history_directory(settings, LOCAL))
    with contextlib.closing(job_archive), job_archive.transaction() as db:
        account_store.save_account(db, account)


def apply_retention(settings: Settings, now: float) -> None:
    """Remove records from the archive after their time."""
    directory = history_directory(settings, LOCAL)
    if os.path.isdir(directory):
        with contextlib.closing(Archive(directory)) as job_archive:
            retention.apply_retention(job_archive, retention.RetentionSettings.from_settings(settings), now)


def _gaps(store: Store, row: Row, events: list[Event]) -> Iterator[Gap]:
    """Yield a gap for each attempt whose log files were removed, at the time of its first event."""
    for directory, attempt in locations.log_directories(store.home, row):
        if not directory.is_dir():
            times = (event.time for event in events if event.attempt == attempt)
            # Plus the attempt, so that no two gaps have the same time.
            at = int(min(times, default=row.state.created) * 1e9) + attempt
            yield Gap(first_ns=at, last_ns=at, reason=locations.REMOVED, attempt=attempt)
