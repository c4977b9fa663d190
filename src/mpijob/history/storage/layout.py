"""Where the files of lines are, below the directory of logs and by the same names in an object store.

NAMESPACE/UID/RANDOM.log     since format 4
UID/RANDOM.log               before; these files stay where they are, and their rows say so

A row holds the whole name of its file, so readers need not know which layout it is of. A directory of the newer
layout belongs to one job alone.
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

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_TRIES = 10
_STORED = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")


def folder(key: JobKey) -> str:
    """Return the directory of one job's files."""
    return f"{_directory(key.namespace)}/{_directory(key.uid)}"


def new_file(key: JobKey) -> str:
    """Return a name for a file of a job that no other has."""
    return f"{folder(key)}/{os.urandom(8).hex()}.log"


def folders_of(key: JobKey, files: list[str]) -> set[str]:
    """Return the directories that hold files of this job alone: its own, and that of the layout before."""
    return {folder(key), *(os.path.dirname(file) for file in map(checked, files) if file.count("/") == 1)}


def checked(file: str) -> str:
    """Return the name that a row holds, with nothing in it that leads elsewhere."""
    return "/".join(part if _STORED.fullmatch(part) else _digest(part) for part in file.split("/"))


def _directory(name: str) -> str:
    """Return a name as a directory: a uid may hold anything, and no two may share a directory."""
    return name if _PLAIN.fullmatch(name) else _digest(name)


def _digest(name: str) -> str:
    return f"_{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()[:32]}"


# -- directories ------------------------------------------------------------------------------------
def make_directory(path: str) -> None:
    """Make a directory and the one above it, which another process may just be removing because it is empty."""
    for left in reversed(range(_TRIES)):
        try:
            for directory in (os.path.dirname(path), path):  # makedirs closes the last one only
                os.makedirs(directory, mode=0o700, exist_ok=True)
            return
        except FileNotFoundError:
            if not left:
                raise


def remove_directory(path: str, root: str) -> None:
    """Remove the files in a directory, then it and those above it up to the root, as far as they are empty."""
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
    """Remove a directory unless something is in it; return whether it is gone."""
    try:
        os.rmdir(path)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return False
        if error.errno != errno.ENOENT:
            raise
    return True


# -- the layout before ------------------------------------------------------------------------------
def fill(db: Connection) -> None:
    """Write into the rows of older files where these are, if their directory is not simply the uid."""
    for namespace, uid in db.execute("SELECT DISTINCT namespace, uid FROM chunks").fetchall():
        if not _PLAIN.fullmatch(uid):
            older = f"x{uid.encode().hex()[:120]}/"
            db.execute(
                "UPDATE chunks SET file=? || substr(file, ?) WHERE namespace=? AND uid=?",
                (older, len(uid) + 2, namespace, uid),
            )
