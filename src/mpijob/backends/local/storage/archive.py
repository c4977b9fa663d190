"""What stays of a job that is deleted: its record and its logs, put away in the archive of this engine.

While a job is there, the engine's own files are its record; `history` answers when they are gone.
"""

from __future__ import annotations

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
    """Put a job that has ended into the archive, before it is removed."""
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
    """Keep what a job used when all else of it is forgotten in time."""
    from mpijob.backends.local.storage import accounts
    from mpijob.history import account_store

    account = accounts.job_account(store, uid, now)
    kept = Archive(history_directory(settings, LOCAL))
    try:
        with kept.transaction() as db:
            account_store.save_account(db, account)
    finally:
        kept.close()


def apply_retention(settings: Settings, now: float) -> None:
    """Remove from the archive what was kept long enough."""
    directory = history_directory(settings, LOCAL)
    if os.path.isdir(directory):
        kept = Archive(directory)
        try:
            retention.apply_retention(kept, retention.RetentionSettings.from_settings(settings), now)
        finally:
            kept.close()


def _gaps(store: Store, row: Row, events: list[Event]) -> Iterator[Gap]:
    """Yield what is missing already, where it would begin: each attempt whose files were removed."""
    for directory, attempt in locations.log_directories(store.home, row):
        if not directory.is_dir():
            begun = min((one.time for one in events if one.attempt == attempt), default=row.state.created)
            at = int(begun * 1e9) + attempt
            yield Gap(first_ns=at, last_ns=at, reason=locations.REMOVED, attempt=attempt)
