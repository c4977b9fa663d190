"""Bringing the files that a job left to this machine."""

from __future__ import annotations

from collections.abc import Iterator
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
    named = [_inside(path) for path in paths]
    there = [PurePosixPath(file.path) for file in await backend.artifacts(ref)]
    wanted = tuple(str(file) for file in _chosen(named, there)) if paths else tuple(map(str, there))
    targets = [Path(directory) / _inside(path) for path in wanted]
    for path, target in zip(wanted, targets, strict=True):
        await backend.fetch(ref, path, target)
    return tuple(targets)


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


def _chosen(named: list[PurePosixPath], there: list[PurePosixPath]) -> Iterator[PurePosixPath]:
    """Yield the files that are meant; a name that no folder has is a file's, which the engine knows or does not."""
    for one in named:
        yield from [file for file in there if one in file.parents] or [one]


def _inside(path: str) -> PurePosixPath:
    """Refuse a path that would lead out of the directory it is fetched to."""
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts:
        raise NotFound(f"the job left no file {path!r}", hint="mpijob artifacts list shows what there is")
    return pure
