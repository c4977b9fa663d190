"""Open the database of an archive, create it, and migrate it to the newest schema (`schema`).

Statements are run by `archive`; a PostgreSQL database is opened by `postgres`.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator
from typing import Any

from mpijob.errors import BackendError
from mpijob.history.storage import schema

_LOCK_TIMEOUT_SECONDS = 30


def open_database(path: str, *, shared: bool = False, address: str = "") -> Any:
    """Open the database, created or migrated if needed; `shared` allows use from several threads.

    With an `address` (postgresql://…) it is a PostgreSQL database.
    """
    if address:
        # psycopg is an optional dependency.
        from mpijob.history.storage.postgres import Database

        return Database(address)
    old_mask = os.umask(0o077)
    try:
        db = sqlite3.connect(
            path, timeout=_LOCK_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=not shared
        )
        # With a write-ahead log, the last commits may be lost in a power failure; they are read from the
        # engine again. The database cannot be damaged.
        db.execute("PRAGMA synchronous=NORMAL")
        # Erased data must not be recoverable from the file.
        db.execute("PRAGMA secure_delete=ON")
    finally:
        os.umask(old_mask)
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    if version > schema.VERSION:
        raise BackendError(
            f"{path} was written by a newer mpijob (format {version}, this one knows {schema.VERSION})",
            hint="use the newer version, or set MPIJOB_HISTORY to another directory",
        )
    if version < schema.VERSION:
        _migrate(db)
    return db


def _migrate(db: sqlite3.Connection) -> None:
    enable_wal(db)
    db.execute("BEGIN IMMEDIATE")
    try:
        # The version is read again under the lock: another process may have migrated meanwhile.
        schema.migrate(db, int(db.execute("PRAGMA user_version").fetchone()[0]))
        db.execute(f"PRAGMA user_version={schema.VERSION}")
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


def enable_wal(db: sqlite3.Connection) -> None:
    """Switch this database to write-ahead logging: readers and one writer work concurrently."""
    deadline = time.monotonic() + _LOCK_TIMEOUT_SECONDS
    # The switch needs an exclusive lock and does not honour the busy timeout.
    while True:
        try:
            db.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


@contextlib.contextmanager
def storage_errors(path: str) -> Iterator[None]:
    """Translate errors of the files below a path into BackendError."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise BackendError(
            f"cannot read or write the job history in {path}: {error}",
            hint="free disk space, or set MPIJOB_HISTORY to a directory that you may write to",
        ) from error
