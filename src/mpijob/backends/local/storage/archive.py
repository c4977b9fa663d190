"""What stays of a job that is deleted: its record and its logs, put away in the archive of this engine.

While a job is there, the engine's own files are its record; `history` answers when they are gone.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from mpijob.backends.attempts import mpi_profiles as profile_files
from mpijob.backends.attempts.log_reader import speaker, workers_of
from mpijob.backends.local.logs import locations
from mpijob.errors import BackendError
from mpijob.history import mpi_profiles, retention
from mpijob.history.archive import Archive, deleted_event, deleted_state
from mpijob.history.import_job import JobImport, import_job
from mpijob.history.records import Gap, LogSource
from mpijob.model import Event, Role
from mpijob.settings import LOCAL, Settings, history_directory

if TYPE_CHECKING:
    from mpijob.backends.local.queue.store import Row, Store

_log = logging.getLogger(__name__)


def put_away(store: Store, row: Row, settings: Settings) -> None:
    """Put a job that has ended into the archive, before it is removed.

    A disk without room does not keep anybody from deleting: what frees room must not need any.
    """
    now = time.time()
    try:
        archive = Archive(history_directory(settings, LOCAL))
        try:
            import_job(archive, _whole(store, row, now), _logs(store, row), now)
            retention.apply_retention(archive, retention.RetentionSettings.from_settings(settings), now)
        finally:
            archive.close()
    except (BackendError, OSError) as error:
        _log.warning("no record of %s could be kept: %s", row.state.ref, error)


def keep_account(store: Store, uid: str, settings: Settings, now: float) -> None:
    """Keep what a job used when all else of it is forgotten in time."""
    from mpijob.backends.local.storage import accounts
    from mpijob.history import account_store

    account = accounts.of_state(store, uid, now)
    archive = Archive(history_directory(settings, LOCAL))
    try:
        with archive.transaction() as db:
            account_store.save_account(db, account)
    finally:
        archive.close()


def tidy(settings: Settings, now: float) -> None:
    """Remove from the archive what was kept long enough."""
    directory = history_directory(settings, LOCAL)
    if os.path.isdir(directory):
        archive = Archive(directory)
        try:
            retention.apply_retention(archive, retention.RetentionSettings.from_settings(settings), now)
        finally:
            archive.close()


def _whole(store: Store, row: Row, now: float) -> JobImport:
    plan = store.plan(row.uid)
    events = store.events(row.uid)
    last = msgspec.structs.replace(deleted_event(now, row.attempt), sequence=len(events) + 1)
    return JobImport(
        state=deleted_state(row.state, now),
        spec=msgspec.json.encode(plan.job),
        plan=msgspec.json.encode(plan),
        events=(*events, last),
        samples=store.samples(row.uid),
        facts=mpi_profiles.profile_facts(
            profile_files.read(store.home.attempt(row.uid, row.attempt), row.state, now), now
        ),
        gaps=tuple(_gaps(store, row, events)),
        attempts=tuple(store.attempts(row.uid)),
    )


def _gaps(store: Store, row: Row, events: list[Event]) -> Iterator[Gap]:
    """Yield what is missing already, where it would begin: each attempt whose files were removed."""
    for directory, attempt in locations.directories(store.home, row):
        if not directory.is_dir():
            begun = min((one.time for one in events if one.attempt == attempt), default=row.state.created)
            at = int(begun * 1e9) + attempt
            yield Gap(first_ns=at, last_ns=at, reason=locations.REMOVED, attempt=attempt)


def _logs(store: Store, row: Row) -> Iterator[tuple[LogSource, str]]:
    workers = workers_of(row.state.ranks)
    for directory, attempt in locations.directories(store.home, row):
        for path in sorted(directory.iterdir()) if directory.is_dir() else ():
            if (found := speaker(path.name)) is None:
                continue
            role, number, _step = found
            rank = number if role is Role.RANK else None
            worker = number if role is Role.WORKER else workers.get(rank) if rank is not None else None
            key, source = row.state.ref.key, path.name
            voice = LogSource(key=key, attempt=attempt, role=role, worker=worker, rank=rank, source=source)
            yield voice, str(path)
