"""What still works when the disk is full: looking at jobs, and ending or deleting them.

SQLite needs files beside the database even to read it, and room to write down that a job is gone. So the home keeps a
reserve, which whoever ends or deletes a job gives up when nothing more fits, and which a later submit makes again. And
what was written last can be read without those files.
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

RESERVE_BYTES = 1 << 20  # the journal of a deletion and of its record, several times over


def ensure_reserve(home: Home) -> None:
    """Make the reserve of a home that has none, where there is room for it."""
    if not home.reserve.exists() and disk_reserve.has_space(home.root, RESERVE_BYTES):
        _allocate(home.reserve)


def free_reserve_if_full(home: Home) -> None:
    """See to it that what ends or is deleted can be written down: where nothing more fits, give the reserve up."""
    if _has_space(home):
        return
    with contextlib.suppress(OSError):  # none is left, or nothing may be changed here: the act tells that
        home.reserve.unlink()


def _has_space(home: Home) -> bool:
    """Whether the reserve's room is free; a quota too is only told by trying.

    The file has no name that two threads could share or that a killed process could leave behind.
    """
    import tempfile  # rarely needed: start-up is a feature

    try:
        with tempfile.TemporaryFile(dir=home.root, buffering=0) as probe:
            os.posix_fallocate(probe.fileno(), 0, RESERVE_BYTES)
    except OSError:
        return False
    return True


def _allocate(path: Path) -> None:
    """Make a file that takes up the reserve's room, or none where it does not fit."""
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
    """Return all rows of a query on a database beside which nothing can be made; None where that is not the truth.

    It is not while somebody has it open to write, or was killed then: the newest is in the journal, not in it.
    """
    before = _stamp(database)
    if before is None:
        return None
    try:
        with contextlib.closing(sqlite3.connect(f"file:{quote(database)}?immutable=1", uri=True)) as db:
            same = db.execute("PRAGMA user_version").fetchone()[0] == version
            rows = db.execute(sql, values).fetchall() if same else None
    except sqlite3.Error:
        return None
    return rows if _stamp(database) == before else None


def _stamp(database: str) -> tuple[int, int] | None:
    """Return what changes when a database does; None where there is none, or one with a journal."""
    try:
        about = os.stat(database)
    except OSError:
        return None
    with contextlib.suppress(OSError):
        if os.stat(f"{database}-wal").st_size:
            return None
    return about.st_mtime_ns, about.st_size
