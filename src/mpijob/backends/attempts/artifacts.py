"""The files that a job wrote to its working directory: listed, and copied out.

All attempts share that directory, so that the next one finds the last checkpoint. Files that must stay separate
are written to the directory of the attempt in it (`MPIJOB_OUTPUT`).

Paths come from users and file names from jobs: nothing outside the working directory is ever read, and a symbolic
link that leads out of it is not followed.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from mpijob import codec
from mpijob.backends.code_upload import Stamp, stamp
from mpijob.errors import BackendError, NotFound
from mpijob.model import Artifact

_ATTEMPT_DIRECTORY = re.compile(r"attempt-([1-9][0-9]{0,5})")


def read_uploaded(record: Path) -> dict[str, Stamp]:
    """Return the stamps of a job's uploaded files from where they were stored; {} if they were not."""
    try:
        return codec.decode(record.read_bytes(), dict[str, tuple[int, int]])
    except (OSError, msgspec.DecodeError):
        return {}


def list_written(work: Path, uploaded: Mapping[str, Stamp]) -> tuple[Artifact, ...]:
    """Return the files that the job wrote: those that were not uploaded with it, or that it changed since."""
    # Compared with the copies that the job was given: the user keeps changing the original files.
    return tuple(sorted(_written(work, uploaded)))


def _written(work: Path, uploaded: Mapping[str, Stamp]) -> Iterator[Artifact]:
    for directory, names, files in os.walk(work):
        names[:] = [name for name in names if name != "__pycache__"]
        for name in files:
            path = Path(directory, name)
            relative = path.relative_to(work)
            status = path.lstat()
            if path.is_file() and not path.is_symlink() and uploaded.get(str(relative)) != stamp(status):
                yield Artifact(str(relative), status.st_size, status.st_mtime, _attempt(relative))


def attempt_directory(attempt: int) -> str:
    """Return the name of an attempt's own directory in the working directory."""
    return f"attempt-{attempt}"


def _attempt(relative: Path) -> int:
    match = _ATTEMPT_DIRECTORY.fullmatch(relative.parts[0]) if len(relative.parts) > 1 else None
    return int(match[1]) if match else 0


def fetch(work: Path, path: str, target: Path) -> None:
    """Copy one file out of the working directory; raise NotFound for any other path."""
    source = (work / path.replace("\0", "\\0")).resolve()
    if not source.is_relative_to(work.resolve()) or not source.is_file():
        raise NotFound(
            f"the job has no output file {path!r}", hint="list the files with: mpijob artifacts list"
        )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    except OSError as error:
        raise BackendError(f"cannot write {target}: {error.strerror}") from error
