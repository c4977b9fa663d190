"""The whole record at once: backed up, put back, and what is known of one person erased from it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mpijob.errors import NotFound
from mpijob.history import keeping, moving
from mpijob.history.archive import Archive
from mpijob.history.objects import Objects
from mpijob.model.accounts import AccountQuery
from mpijob.settings import LOCAL, history_directory

if TYPE_CHECKING:
    from mpijob.backends.base import Backend
    from mpijob.model import JobRef
    from mpijob.settings import Settings


def directory(backend: Backend, settings: Settings) -> str:
    """Return where the record of an engine's jobs is."""
    return history_directory(settings, backend.name or LOCAL)


def backup(backend: Backend, settings: Settings, target: str) -> int:
    """Write the record into one file; return how many jobs are in it."""
    archive = _opened(backend, settings)
    try:
        return moving.backup(archive, target)
    finally:
        archive.close()


def restore(backend: Backend, settings: Settings, source: str) -> int:
    """Put a backup back; return how many jobs are in it."""
    return moving.restore(source, directory(backend, settings))


def erase_user(backend: Backend, settings: Settings, user: str) -> tuple[JobRef, ...]:
    """Erase the records of one user's jobs that are gone, logs and accounts too; return whose they were."""
    archive = _opened(backend, settings)
    try:
        from mpijob.history import ledger

        query = AccountQuery(owners=(user,), limit=1_000_000)
        found = tuple(one.ref for one in ledger.find(archive, query) if one.deleted)
        keeping.erase(archive, (ref.key for ref in found))
        return found
    finally:
        archive.close()


def _opened(backend: Backend, settings: Settings) -> Archive:
    path, database = directory(backend, settings), _database(backend, settings)
    if not database and not os.path.isdir(path):
        raise NotFound(
            f"there is no record in {path}", hint="a record begins when a job is deleted, or with a recorder"
        )
    return Archive(path, database=database, objects=_objects(backend, settings))


def _objects(backend: Backend, settings: Settings) -> Objects | None:
    here = (backend.name or LOCAL) == LOCAL
    return None if here or not settings.objects.endpoint else Objects(settings.objects)


def _database(backend: Backend, settings: Settings) -> str:
    return "" if (backend.name or LOCAL) == LOCAL else settings.history_database
