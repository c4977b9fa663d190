"""A job's log files as downloads: each stream's own bytes, or all of them merged by time.

A large merge is done in parts, one behind the other in time, by as many processes as there are cores: this
module is also the program of such a helper. How lines are merged is the business of `observation/logs/bulk_merge`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import IO, Any

import msgspec

from mpijob import codec
from mpijob.observation.logs import bulk_merge

PARALLEL_BYTES = 32 * 1024 * 1024
MAX_PARTS = 8
_COMPRESSION = 6


class FileRange(msgspec.Struct, frozen=True):
    """Some bytes of one source's log file, from one line's beginning to another's."""

    source: str
    path: str
    begin: int
    end: int

    def chunks(self) -> Iterator[bytes]:
        """Yield its bytes, a few at first."""
        with open(self.path, "rb", buffering=0) as file:
            at, size = self.begin, bulk_merge.FIRST_BYTES
            file.seek(at)
            while at < self.end and (chunk := file.read(min(size, self.end - at))):
                at += len(chunk)
                size = min(2 * size, bulk_merge.MOST_BYTES)
                yield chunk


class Part(msgspec.Struct, frozen=True):
    """What one process merges: a stretch of time of every file."""

    ranges: list[FileRange]
    compress: bool


def merge(files: Sequence[tuple[str, Path]], target: IO[bytes], *, compress: bool, parts: int = 0) -> None:
    """Write all lines of the files in time order; the first come at once."""
    if not files:
        return
    todo = [Part(ranges, compress) for ranges in _split(files, parts or _count_parts(files))]
    with ExitStack() as stack:
        helpers = [stack.enter_context(_MergeProcess(part)) for part in todo[1:]]
        _write(todo[0], target)
        for helper in helpers:
            helper.copy_to(target)


def _count_parts(files: Sequence[tuple[str, Path]]) -> int:
    total = sum(path.stat().st_size for _, path in files)
    return min(len(os.sched_getaffinity(0)), MAX_PARTS, total // PARALLEL_BYTES + 1)


def _split(files: Sequence[tuple[str, Path]], parts: int) -> list[list[FileRange]]:
    stamps = _split_times(max((path for _, path in files), key=lambda path: path.stat().st_size), parts)
    found: list[list[FileRange]] = [[] for _ in range(len(stamps) + 1)]
    for source, path in files:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            ends = bulk_merge.places(partial(_read_at, file.fileno()), size, stamps)
        for part, begin, end in zip(found, [0, *ends], ends, strict=False):
            part.append(FileRange(source, str(path), begin, end))
    return found


def _read_at(fd: int, at: int, count: int) -> bytes:
    return os.pread(fd, count, at)


def _split_times(largest: Path, parts: int) -> list[str]:
    """Return time stamps that cut the largest file into parts of about the same size."""
    size = largest.stat().st_size
    with largest.open("rb") as file:
        found = []
        for number in range(1, parts):
            file.seek(size * number // parts)
            file.readline()
            found.append(file.readline()[:30].decode("latin-1"))
    return found


def _write(part: Part, target: IO[bytes]) -> None:
    files = {one.source: one.chunks() for one in part.ranges}
    if not part.compress:
        for lines in bulk_merge.merged(files):
            target.write(lines)
        return
    import gzip  # the first line of a plain merge does not wait for it

    with gzip.GzipFile(fileobj=target, mode="wb", compresslevel=_COMPRESSION, mtime=0) as packed:
        for lines in bulk_merge.merged(files):
            packed.write(lines)


class _MergeProcess:
    """Another process that merges a later part into a file of its own; packed parts one behind the other are one."""

    def __init__(self, part: Part) -> None:
        self._part = part

    def __enter__(self) -> _MergeProcess:
        import subprocess
        import tempfile

        self._file = tempfile.TemporaryFile()
        argv = [sys.executable, "-m", "mpijob.backends.local.logs.parallel_merge"]
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=self._file)
        assert self._process.stdin is not None
        with self._process.stdin as pipe:
            pipe.write(msgspec.json.encode(self._part))
        return self

    def copy_to(self, target: IO[bytes]) -> None:
        """Write what the process has merged, once it is done."""
        if self._process.wait():
            raise OSError(f"the log merge process ended with {self._process.returncode}")
        self._file.seek(0)
        while data := self._file.read(1 << 20):
            target.write(data)

    def __exit__(self, *_: Any) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._file.close()


if __name__ == "__main__":
    _write(codec.decode(sys.stdin.buffer.read(), Part), sys.stdout.buffer)
