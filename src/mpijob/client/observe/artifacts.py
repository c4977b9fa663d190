"""Download the output files of a job.

Files are fetched into a directory beside their targets and moved when all have arrived, so that a conflict
with a file of the user is found before anything is written.
"""

from __future__ import annotations

import filecmp
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from mpijob.backends.capabilities import SupportsArtifactStore, SupportsRemoteArtifacts
from mpijob.errors import BackendError, Conflict, Finding, NotFound, Unsupported
from mpijob.model import Artifact, JobRef

if TYPE_CHECKING:
    from mpijob.backends.protocol import Backend


_MOST_NAMED = 5


def listed(backend: Backend, ref: JobRef) -> tuple[Artifact, ...]:
    """Return the output files of a job."""
    remote = backend.capability(SupportsRemoteArtifacts)
    return backend.artifacts(ref) if remote is None else remote.list_artifacts(ref)


def fetch(
    backend: Backend,
    ref: JobRef,
    directory: str | Path,
    paths: tuple[str, ...],
    *,
    overwrite: bool = False,
) -> tuple[Path, ...]:
    """Download files, those of directories, or all, with their paths below the directory.

    Raise Conflict, and write nothing, if a target exists with other contents.
    """
    named = [_inside(path) for path in paths]
    target = Path(directory)
    with _beside(target) as stage:
        found = _all_fetched(backend, ref, named, stage)
        if not overwrite:
            _refuse_other_files(target, stage, found)
        _put(target, stage, found)
    return tuple(target / one for one in found)


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """Create a temporary directory on the same disk as the target."""
    with _write_errors(target):
        target.mkdir(parents=True, exist_ok=True)
        # In the target, so that the files can be renamed, which is atomic, instead of copied.
        stage = tempfile.TemporaryDirectory(dir=target, prefix=".mpijob-fetch-")
    with stage as name:
        yield Path(name)


def _refuse_other_files(target: Path, stage: Path, places: Iterable[PurePosixPath]) -> None:
    others = [str(place) for place in places if _differs(target / place, stage / place)]
    if others:
        more = len(others) - _MOST_NAMED
        names = ", ".join(others[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
        raise Conflict(
            f"{target.resolve()} has files that differ from the job's files: {names}; nothing was downloaded",
            hint="use another directory (--to DIRECTORY), name the files, or add --overwrite",
        )


def _differs(there: Path, fetched: Path) -> bool:
    if not os.path.lexists(there):
        return False
    with _write_errors(there):
        return not there.is_file() or not filecmp.cmp(there, fetched, shallow=False)


def _put(target: Path, stage: Path, places: Iterable[PurePosixPath]) -> None:
    for place in places:
        with _write_errors(target / place):
            (target / place).parent.mkdir(parents=True, exist_ok=True)
            os.replace(stage / place, target / place)


@contextmanager
def _write_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BackendError(f"cannot write {path}: {error.strerror}") from error


def _all_fetched(
    backend: Backend, ref: JobRef, named: list[PurePosixPath], stage: Path
) -> list[PurePosixPath]:
    """Fetch files and directories, or all; in one transfer if the engine supports it."""
    if (at_once := backend.capability(SupportsRemoteArtifacts)) is not None:
        came = at_once.fetch_many(ref, [str(place) for place in named], stage)
        return list(dict.fromkeys(map(_inside, came)))
    places = named or [_inside(file.path) for file in backend.artifacts(ref)]
    return list(dict.fromkeys(one for place in places for one in _fetched(backend, ref, stage, place)))


def _fetched(backend: Backend, ref: JobRef, directory: Path, place: PurePosixPath) -> list[PurePosixPath]:
    """Fetch a file or, if there is none of this name, every file of a directory."""
    try:
        backend.fetch(ref, str(place), directory / place)
    except NotFound:
        files = [_inside(file.path) for file in backend.artifacts(ref)]
        below = [file for file in files if place in file.parents]
        if not below:
            raise
        return [one for file in below for one in _fetched(backend, ref, directory, file)]
    return [place]


def store(backend: Backend, ref: JobRef) -> tuple[str | Finding, ...]:
    """Upload the files of the job's S3 volumes again, if the engine still has them."""
    kept = backend.capability(SupportsArtifactStore)
    if kept is None:
        raise Unsupported(
            f"engine {backend.name} has no copy of the S3 volumes of {ref.name}",
            hint="on a cluster they are uploaded while the job runs, and when it ends",
        )
    return kept.store(ref)


def _inside(path: str) -> PurePosixPath:
    """Refuse a path that leads out of the target directory."""
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or "\0" in path:
        raise NotFound(
            f"the job has no output file {path!r}", hint="list the files with: mpijob artifacts list"
        )
    return pure
