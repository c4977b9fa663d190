"""Reading, cancelling and deleting jobs on a full disk.

The home has a reserve file. Cancelling and deleting remove it when there is no other space, and a later submit creates
it again. Reading needs no space: `read_last_written` reads the database file alone.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from mpijob.history.storage import disk_reserve

if TYPE_CHECKING:
    from pathlib import Path

    from mpijob.backends.local.storage.paths import Home

# Several times the journal of a deletion and of the job's record.
RESERVE_BYTES = 1 << 20


def ensure_reserve(home: Home) -> None:
    if not home.reserve.exists() and disk_reserve.has_space(home.root, RESERVE_BYTES):
        _allocate(home.reserve)


def free_reserve_if_full(home: Home) -> None:
    """Remove the reserve if the disk is full, so that the next small writes succeed."""
    if _has_space(home):
        return
    # Without a reserve, or without write access, the write that follows fails and reports it.
    with contextlib.suppress(OSError):
        home.reserve.unlink()


def _has_space(home: Home) -> bool:
    # By trying: statvfs does not know quotas. The file has no name, so threads do not share it, and a killed process
    # does not leave it behind.
    import tempfile

    try:
        with tempfile.TemporaryFile(dir=home.root, buffering=0) as probe:
            os.posix_fallocate(probe.fileno(), 0, RESERVE_BYTES)
    except OSError:
        return False
    return True


def _allocate(path: Path) -> None:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.posix_fallocate(fd, 0, RESERVE_BYTES)
        finally:
            os.close(fd)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(path)


def read_last_written(database: str, version: int, sql: str, values: tuple[Any, ...]) -> list[Any] | None:
    """Return the rows of a query on a database beside which no file can be created, None if it may be outdated."""
    before = _stamp(database)
    if before is None:
        return None
    try:
        # SQLite creates files beside a WAL database even to read it, unless it is said to be immutable.
        with contextlib.closing(sqlite3.connect(f"file:{quote(database)}?immutable=1", uri=True)) as db:
            same = db.execute("PRAGMA user_version").fetchone()[0] == version
            rows = db.execute(sql, values).fetchall() if same else None
    except sqlite3.Error:
        return None
    return rows if _stamp(database) == before else None


def _stamp(database: str) -> tuple[int, int] | None:
    """Return values that change with the database, None without one or while it has a journal."""
    try:
        status = os.stat(database)
    except OSError:
        return None
    # The newest transactions are in the journal while a process has the database open, or after one was killed.
    with contextlib.suppress(OSError):
        if os.stat(f"{database}-wal").st_size:
            return None
    return status.st_mtime_ns, status.st_size
