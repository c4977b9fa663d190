"""Files of lines on the disk or in the object store: moved there when they are sealed, found in either."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from mpijob.errors import NotStored
from mpijob.history import objects

if TYPE_CHECKING:
    from mpijob.history.archive import Archive

_MOST_FAILURES = 3


def local(archive: Archive, uid: str, file: str) -> str:
    """Return where a chunk can be read on this disk; got from the object store if it is not here."""
    path = archive.path(uid, file)
    if archive.objects is None or os.path.exists(path):
        return path
    return (
        objects.cached(archive.objects, name(archive, uid, file), os.path.join(archive.directory, "cache"))
        or path
    )


def move(archive: Archive) -> int:
    """Move sealed chunks into the object store; return how many.

    A chunk is removed here when the store has confirmed that it holds it. One that it does not confirm stays, the
    others go on; after a few such the rest waits for the next round. The first failure is raised at the end.
    """
    if archive.objects is None:
        return 0
    moved, failures = 0, []
    for uid, file, size in archive.read("SELECT uid, file, size FROM chunks WHERE sealed=1 ORDER BY id"):
        path = archive.path(uid, file)
        if not os.path.exists(path):
            continue
        with open(path, "rb") as opened:
            content = opened.read(size)
        if len(content) < size:
            continue  # a damaged one stays where it can be looked at
        try:
            archive.objects.put(name(archive, uid, file), content)
        except NotStored as error:
            failures.append(error)
            if len(failures) == _MOST_FAILURES:
                break
        else:
            os.unlink(path)
            moved += 1
    if failures:
        raise failures[0]
    return moved


def remove(archive: Archive, uid: str, file: str) -> None:
    """Remove a chunk wherever it is."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(archive.path(uid, file))
    if archive.objects is not None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(archive.directory, "cache", file))
        archive.objects.remove(name(archive, uid, file))


def name(archive: Archive, uid: str, file: str) -> str:
    """Return what a chunk is called in the object store."""
    return f"{os.path.basename(archive.folder(uid))}/{file}"
