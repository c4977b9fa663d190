"""The database of an archive: opened, made, and brought to the newest format (`schema`)."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator
from typing import Any

from mpijob.errors import BackendError
from mpijob.history.storage import schema

_PATIENCE_SECONDS = 30


def open_database(path: str, *, shared: bool = False, address: str = "") -> Any:
    """Return the database, made or brought forward where needed; `shared` lets several threads take turns.

    With an `address` (postgresql://…) it is PostgreSQL's.
    """
    if address:
        from mpijob.history.storage.postgres import Database  # an extra

        return Database(address)
    old_mask = os.umask(0o077)
    try:
        db = sqlite3.connect(
            path, timeout=_PATIENCE_SECONDS, isolation_level=None, check_same_thread=not shared
        )
        db.execute("PRAGMA synchronous=NORMAL")
        db.execute("PRAGMA secure_delete=ON")  # what is erased is not to be found in the file either
    finally:
        os.umask(old_mask)
    found = int(db.execute("PRAGMA user_version").fetchone()[0])
    if found > schema.VERSION:
        raise BackendError(
            f"{path} was written by a newer mpijob (format {found}, this one knows {schema.VERSION})",
            hint="use the newer version, or set MPIJOB_HISTORY to another directory",
        )
    if found < schema.VERSION:
        _bring_forward(db)
    return db


def _bring_forward(db: sqlite3.Connection) -> None:
    use_wal(db)
    db.execute("BEGIN IMMEDIATE")
    try:
        schema.take_steps(db, int(db.execute("PRAGMA user_version").fetchone()[0]))
        db.execute(f"PRAGMA user_version={schema.VERSION}")
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


def use_wal(db: sqlite3.Connection) -> None:
    """Let readers and one writer work side by side in this database from now on."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:  # the switch needs the file for itself and does not honour the busy timeout
        try:
            db.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


@contextlib.contextmanager
def telling(path: str) -> Iterator[None]:
    """Tell what goes wrong with the files below as an error of ours."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise BackendError(
            f"the record in {path} cannot be read or written: {error}",
            hint="free some space, or set MPIJOB_HISTORY to a directory that you may write to",
        ) from error
