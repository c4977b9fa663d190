"""Files of lines on the disk or in the object store: moved there when they are sealed, found in either."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mpijob.errors import NotStored
from mpijob.history.storage import layout, s3

if TYPE_CHECKING:
    from mpijob.history.archive import Archive

_MOST_FAILURES = 3


def local(archive: Archive, file: str) -> str:
    """Return where a chunk can be read on this disk; got from the object store if it is not here."""
    path = archive.path(file)
    if archive.objects is None or os.path.exists(path):
        return path
    directory = os.path.join(archive.directory, "cache")
    return s3.cached(archive.objects, layout.checked(file), directory) or path


def move(archive: Archive) -> int:
    """Move sealed chunks into the object store; return how many.

    A chunk is removed here when the store has confirmed that it holds it. One that it does not confirm stays, the
    others go on; after a few such the rest waits for the next round. The first failure is raised at the end.
    """
    if archive.objects is None:
        return 0
    moved, failures = 0, []
    for file, size in archive.read("SELECT file, size FROM chunks WHERE sealed=1 ORDER BY id"):
        path = archive.path(file)
        if not os.path.exists(path):
            continue
        with open(path, "rb") as opened:
            content = opened.read(size)
        if len(content) < size:
            continue  # a damaged one stays where it can be looked at
        try:
            archive.objects.put(layout.checked(file), content)
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


def remove(archive: Archive, file: str) -> None:
    """Remove a chunk wherever it is."""
    path = archive.path(file)
    layout.remove_file(path)
    if archive.objects is not None:
        layout.remove_file(os.path.join(archive.directory, "cache", os.path.basename(path)))
        archive.objects.remove(layout.checked(file))
