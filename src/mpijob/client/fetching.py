"""Bringing the files that a job left to this machine."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from mpijob.errors import Finding, NotFound, Unsupported
from mpijob.model import JobRef

if TYPE_CHECKING:
    from mpijob.backends.base import Backend


async def fetch(
    backend: Backend, ref: JobRef, directory: str | Path, paths: tuple[str, ...]
) -> tuple[Path, ...]:
    """Copy the files named and those of folders named, or all of them, keeping their places below the directory."""
    wanted = paths or tuple(file.path for file in await backend.artifacts(ref))
    places = [_inside(path) for path in wanted]
    return tuple([one for place in places for one in await _fetched(backend, ref, Path(directory), place)])


async def _fetched(backend: Backend, ref: JobRef, directory: Path, place: PurePosixPath) -> list[Path]:
    """Copy a file, or every file of the folder where no file has the name."""
    try:
        await backend.fetch(ref, str(place), directory / place)
    except NotFound:
        files = [_inside(file.path) for file in await backend.artifacts(ref)]
        below = [file for file in files if place in file.parents]
        if not below:
            raise
        return [one for file in below for one in await _fetched(backend, ref, directory, file)]
    return [directory / place]


async def store(backend: Backend, ref: JobRef) -> tuple[str | Finding, ...]:
    """Store what a job wrote to its S3 volumes once more, where its engine still has it."""
    again = getattr(backend, "store", None)
    if again is None:
        raise Unsupported(
            f"engine {backend.name} keeps no copy of what {ref.name} wrote to its S3 volumes",
            hint="on a cluster it is stored while the job runs, and when it ends",
        )
    told: tuple[str | Finding, ...] = await again(ref)
    return told


def _inside(path: str) -> PurePosixPath:
    """Refuse a path that would lead out of the directory it is fetched to."""
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts:
        raise NotFound(f"the job left no file {path!r}", hint="mpijob artifacts list shows what there is")
    return pure
