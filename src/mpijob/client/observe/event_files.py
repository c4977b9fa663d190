"""Find TensorBoard event files in a job's working directory, and read their scalars.

Programs choose names and contents of these files, so no symbolic link is followed, only regular files are
opened, and all files share one budget. `observation/metrics/event_files` parses them.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING

from mpijob.backends.capabilities import SupportsWorkingDirectory
from mpijob.client.observe import one_attempt
from mpijob.errors import NotFound, Unsupported
from mpijob.observation.metrics import event_files
from mpijob.observation.metrics.event_files import Budget, EventFile, EventScalars

if TYPE_CHECKING:
    from mpijob.backends.protocol import Backend
    from mpijob.model import Artifact, JobRef

# TensorBoard reads every file with this in its name.
_MARK = "tfevents"
MOST_FILES = 200
# Of all files together.
_MOST_BYTES = 8 << 20
_MOST_RECORDS = 1_000_000
_MOST_CURVES = 1000
_MOST_NOTES = 20
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def read(backend: Backend, ref: JobRef, *, points: int, attempt: int | None = None) -> EventScalars:
    """Return the scalars of a job's event files; empty if they were deleted with the job."""
    # Numbers are returned, and not the content of files, so this is not audited as a read of output.
    works = backend.capability(SupportsWorkingDirectory)
    if works is None:
        # Raises NotFound first: the error below must not reveal that the job exists.
        backend.get(ref)
        raise Unsupported(
            f"the event files of {ref.name} are not on this machine",
            hint=f"fetch them: mpijob artifacts fetch {ref.name} --to runs; then: tensorboard --logdir runs",
        )
    reads = one_attempt.reading(backend, attempt)
    try:
        found = reads.artifacts(ref)
        work = works.working_directory(ref)
    except NotFound:
        if reads.get(ref).deleted:
            return EventScalars()
        raise
    return of_directory(work, found, points=points)


def of_directory(work: Path, left: Iterable[Artifact], *, points: int) -> EventScalars:
    """Return the scalars of the event files of a directory; of too many, of the newest."""
    files = [one for one in left if _MARK in PurePosixPath(one.path).name]
    chosen = sorted(files, key=lambda one: (-one.time, one.path))[:MOST_FILES]
    notes = (
        [f"only the newest {MOST_FILES} of {len(files)} event files are read"]
        if len(files) > MOST_FILES
        else []
    )
    read: list[tuple[str, str, EventFile]] = []
    bytes_left, curves_left = _MOST_BYTES, _MOST_CURVES
    records = _MOST_RECORDS // max(1, len(chosen))
    # Small files first: what they leave of the budget is for large ones.
    for at, one in enumerate(sorted(chosen, key=lambda one: one.size)):
        share = max(1, bytes_left // (len(chosen) - at))
        budget = Budget(share, records, min(event_files.MOST_SERIES, curves_left), points)
        try:
            with _opened(work, one.path) as file:
                size = os.fstat(file.fileno()).st_size
                told = event_files.read(file, size, budget)
        except OSError as error:
            notes.append(f"{one.path}: {error.strerror or 'cannot be read'}")
            continue
        bytes_left -= min(size, share)
        curves_left -= len(told.curves)
        notes += [f"{one.path}: {note}" for note in told.notes]
        read.append((_run(one.path), _writer(one.path), told))
    series = event_files.merged(read, Budget(points=points))
    return EventScalars(tuple(series), len(files), tuple(map(_printable, notes[:_MOST_NOTES])))


def _run(path: str) -> str:
    """Return the run of a file as TensorBoard names it: its directory."""
    return _printable(str(PurePosixPath(path).parent))


def _writer(path: str) -> str:
    """Return the writer of a file: what follows the time in `events.out.tfevents.TIME.HOST.PID`."""
    name = PurePosixPath(path).name
    return _printable(name.partition(f"{_MARK}.")[2].partition(".")[2] or name)


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "\ufffd" for char in text)


@contextmanager
def _opened(work: Path, path: str) -> Iterator[IO[bytes]]:
    """Open a regular file below a directory."""
    # Opened part by part, each relative to the last one and without following links: the job may replace a
    # directory by a link at any time.
    *folders, name = PurePosixPath(path).parts
    folder = os.open(work, _DIRECTORY)
    try:
        for part in folders:
            below = os.open(part, _DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = below
        handle = os.open(name, _FILE, dir_fd=folder)
    finally:
        os.close(folder)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(0, "is not a regular file")
        yield file
