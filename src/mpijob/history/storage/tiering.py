"""Chunk files on disk or in the object store: moved there when sealed, found in either.

The store itself is in `s3`; open chunks stay on disk, because objects cannot be appended to.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mpijob.errors import NotStored
from mpijob.history.storage import layout, s3

if TYPE_CHECKING:
    from mpijob.history.archive import Archive

_MAX_FAILURES = 3


def local_path(archive: Archive, file: str) -> str:
    """Return a local path of a chunk, fetched from the object store if it is not on disk."""
    path = archive.chunk_path(file)
    if archive.objects is None or os.path.exists(path):
        return path
    directory = os.path.join(archive.directory, "cache")
    return s3.fetch_cached(archive.objects, layout.safe_name(file), directory) or path


def move_sealed(archive: Archive) -> int:
    """Move sealed chunks into the object store; return how many.

    The local file is removed once the store has confirmed the object. Other chunks follow after a failure;
    after `_MAX_FAILURES` the rest waits for the next call. The first failure is raised at the end.
    """
    if archive.objects is None:
        return 0
    moved, failures = 0, []
    for file, size in archive.read("SELECT file, size FROM chunks WHERE sealed=1 ORDER BY id"):
        path = archive.chunk_path(file)
        # It was moved earlier.
        if not os.path.exists(path):
            continue
        with open(path, "rb") as opened:
            content = opened.read(size)
        if len(content) < size:
            # A damaged file stays on disk, where it can be examined.
            continue
        try:
            archive.objects.put(layout.safe_name(file), content)
        except NotStored as error:
            failures.append(error)
            if len(failures) == _MAX_FAILURES:
                break
        else:
            os.unlink(path)
            moved += 1
    if failures:
        raise failures[0]
    return moved


def remove(archive: Archive, file: str) -> None:
    """Remove a chunk from disk, cache and object store."""
    path = archive.chunk_path(file)
    layout.remove_file(path)
    if archive.objects is not None:
        layout.remove_file(os.path.join(archive.directory, "cache", os.path.basename(path)))
        archive.objects.remove(layout.safe_name(file))
