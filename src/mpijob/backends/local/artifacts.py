"""The files that a job left in its working directory, listed and copied out.

Paths come from users and file names from jobs: nothing outside the working directory is ever read,
and a symbolic link that leads out of it is not followed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from mpijob.errors import BackendError, NotFound
from mpijob.model import Artifact, Code


def left(work: Path, code: Code) -> tuple[Artifact, ...]:
    """Return what the job wrote: files that did not go along with it, or that it changed."""
    return tuple(sorted(_written(work, code)))


def _written(work: Path, code: Code) -> Iterator[Artifact]:
    for directory, names, files in os.walk(work):
        names[:] = [name for name in names if name != "__pycache__"]
        for name in files:
            path = Path(directory, name)
            relative = path.relative_to(work)
            status = path.lstat()
            if path.is_file() and not path.is_symlink() and not _went_along(relative, status, code):
                yield Artifact(str(relative), status.st_size, status.st_mtime)


def _went_along(relative: Path, status: os.stat_result, code: Code) -> bool:
    if str(relative) in code.files:
        return status.st_size == len(code.files[str(relative)].encode())
    try:
        source = (Path(code.path) / relative).stat() if code.path else None
    except OSError:
        return False
    return source is not None and (source.st_size, source.st_mtime_ns) == (status.st_size, status.st_mtime_ns)


def fetch(work: Path, path: str, target: Path) -> None:
    """Copy one file out of the working directory."""
    source = (work / path.replace("\0", "\\0")).resolve()
    if not source.is_relative_to(work.resolve()) or not source.is_file():
        raise NotFound(f"the job left no file {path!r}", hint="mpijob artifacts list shows what there is")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    except OSError as error:
        raise BackendError(f"cannot write {target}: {error.strerror}") from error
