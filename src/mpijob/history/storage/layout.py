"""Paths of chunk files, below the directory of logs and with the same names in an object store.

NAMESPACE/UID/RANDOM.log     since format 4
UID/RANDOM.log               before; these files stay where they are

A row holds the whole name of its file, so readers need not know the layout. A directory of the newer layout
belongs to one job (docs/decisions/0047).
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mpijob.history.account_store import Connection
    from mpijob.model import JobKey

_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_ATTEMPTS = 10
_STORED_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")


def job_directory(key: JobKey) -> str:
    return f"{_directory_name(key.namespace)}/{_directory_name(key.uid)}"


def new_file(key: JobKey) -> str:
    """Return a unique name for a file of a job."""
    return f"{job_directory(key)}/{os.urandom(8).hex()}.log"


def job_directories(key: JobKey, files: list[str]) -> set[str]:
    """Return the directories that hold files of this job only: of both layouts."""
    # In the older layout, a uid of two namespaces shares one directory; `remove_directory` keeps what is not
    # empty.
    return {
        job_directory(key),
        *(os.path.dirname(file) for file in map(safe_name, files) if file.count("/") == 1),
    }


def safe_name(file: str) -> str:
    """Return the stored name of a file, with parts replaced that could lead outside the directory."""
    # A restored database may come from anywhere.
    return "/".join(part if _STORED_NAME.fullmatch(part) else _digest(part) for part in file.split("/"))


def _directory_name(name: str) -> str:
    # A uid is a label that users can write: it may contain anything, and no two may share a directory. A digest
    # begins with an underscore, which no plain name does.
    return name if _PLAIN_NAME.fullmatch(name) else _digest(name)


def _digest(name: str) -> str:
    return f"_{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()[:32]}"


# -- directories ------------------------------------------------------------------------------------
def make_directory(path: str) -> None:
    """Create a directory and its parent, which another process may be removing because it is empty."""
    for remaining in reversed(range(_ATTEMPTS)):
        try:
            # makedirs applies the mode to the last directory only.
            for directory in (os.path.dirname(path), path):
                os.makedirs(directory, mode=0o700, exist_ok=True)
            return
        except FileNotFoundError:
            if not remaining:
                raise


def remove_directory(path: str, root: str) -> None:
    """Remove the files in a directory, then it and its parents up to the root while they are empty."""
    if not os.path.isdir(path):
        return
    for entry in os.scandir(path):
        if not entry.is_dir(follow_symlinks=False):
            remove_file(entry.path)
    while path != root and remove_if_empty(path):
        path = os.path.dirname(path)


def remove_file(path: str) -> None:
    """Remove a file that another process may have removed already."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def remove_if_empty(path: str) -> bool:
    """Remove a directory unless it has entries; return whether it is gone."""
    try:
        os.rmdir(path)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return False
        if error.errno != errno.ENOENT:
            raise
    return True


# -- migration from the older layout ------------------------------------------------------------------
def backfill(db: Connection) -> None:
    """Store the directory of older files in their rows where it is not simply the uid."""
    for namespace, uid in db.execute("SELECT DISTINCT namespace, uid FROM chunks").fetchall():
        if not _PLAIN_NAME.fullmatch(uid):
            directory = f"x{uid.encode().hex()[:120]}/"
            db.execute(
                "UPDATE chunks SET file=? || substr(file, ?) WHERE namespace=? AND uid=?",
                (directory, len(uid) + 2, namespace, uid),
            )
