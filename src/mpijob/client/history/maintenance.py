"""Maintain the whole history: backup, restore, erasure of a user."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from mpijob.client.audit import recorder
from mpijob.errors import NotFound
from mpijob.history import backup as moving
from mpijob.history import retention
from mpijob.history.archive import Archive
from mpijob.history.storage.s3 import ObjectStore
from mpijob.model import JobRef
from mpijob.model.status.accounts import AccountQuery
from mpijob.model.status.audit import Verb
from mpijob.settings import LOCAL, history_directory

if TYPE_CHECKING:
    from mpijob.backends.protocol import Backend
    from mpijob.settings import Settings

T = TypeVar("T")


def directory(backend: Backend, settings: Settings) -> str:
    """Return the directory of an engine's history."""
    return history_directory(settings, backend.name or LOCAL)


def backup(backend: Backend, settings: Settings, target: str) -> int:
    """Write the history into one file; return the number of jobs."""

    def work() -> int:
        archive = _opened(backend, settings)
        try:
            return moving.backup(archive, target)
        finally:
            archive.close()

    return _acted(backend, Verb.FETCH, "record", work, {"path": target[:200]})


def restore(backend: Backend, settings: Settings, source: str) -> int:
    """Restore a backup; return the number of jobs."""
    place = directory(backend, settings)
    return _acted(
        backend, Verb.RESTORE, "record", lambda: moving.restore(source, place), {"path": source[:200]}
    )


def erase_user(backend: Backend, settings: Settings, user: str) -> tuple[JobRef, ...]:
    """Erase records, logs and accounts of a user's deleted jobs; return these jobs."""

    def work() -> tuple[JobRef, ...]:
        from mpijob.history import account_store

        archive = _opened(backend, settings)
        try:
            query = AccountQuery(owners=(user,), limit=1_000_000)
            found = tuple(one.ref for one in account_store.find(archive, query) if one.deleted)
            retention.erase(archive, (ref.key for ref in found))
            return found
        finally:
            archive.close()

    return _acted(backend, Verb.FORGET, user, work, {})


def _acted(backend: Backend, verb: Verb, name: str, work: Callable[[], T], details: dict[str, str]) -> T:
    """Do and audit something that concerns the whole history."""
    return recorder.act(backend, verb, JobRef("", name), work, details, resource="records")


def _opened(backend: Backend, settings: Settings) -> Archive:
    path, database = directory(backend, settings), _database(backend, settings)
    if not database and not os.path.isdir(path):
        raise NotFound(
            f"no history in {path}", hint="the history starts when a job is deleted, or with a recorder"
        )
    return Archive(path, database=database, objects=_objects(backend, settings))


def _objects(backend: Backend, settings: Settings) -> ObjectStore | None:
    # Object store and database are of a cluster's history; that of this machine is in files.
    here = (backend.name or LOCAL) == LOCAL
    return None if here or not settings.objects.endpoint else ObjectStore(settings.objects)


def _database(backend: Backend, settings: Settings) -> str:
    return "" if (backend.name or LOCAL) == LOCAL else settings.history_database
