"""Log files of a job merged by time, for downloads; large ones in parts, one process for each core.

Each part is a period of time. This module is also the program of the processes; `observation.logs.bulk_merge` merges.
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
    """A range of bytes of one source's log file, from the start of a line to that of another."""

    source: str
    path: str
    begin: int
    end: int

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes in chunks, small ones first."""
        # So that the first lines of a download come at once.
        with open(self.path, "rb", buffering=0) as file:
            at, size = self.begin, bulk_merge.FIRST_BYTES
            file.seek(at)
            while at < self.end and (chunk := file.read(min(size, self.end - at))):
                at += len(chunk)
                size = min(2 * size, bulk_merge.MOST_BYTES)
                yield chunk


class Part(msgspec.Struct, frozen=True):
    """The work of one process: the same period of time of every file."""

    ranges: list[FileRange]
    compress: bool


def merge(files: Sequence[tuple[str, Path]], target: IO[bytes], *, compress: bool, parts: int = 0) -> None:
    """Write all lines of the files (source and path each) in time order; the first lines come at once."""
    if not files:
        return
    first, *others = (Part(ranges, compress) for ranges in _split(files, parts or _count_parts(files)))
    with ExitStack() as stack:
        processes = [stack.enter_context(_MergeProcess(part)) for part in others]
        # By this process, and straight into the target.
        _write(first, target)
        for process in processes:
            process.copy_to(target)


def _count_parts(files: Sequence[tuple[str, Path]]) -> int:
    total = sum(path.stat().st_size for _, path in files)
    return min(len(os.sched_getaffinity(0)), MAX_PARTS, total // PARALLEL_BYTES + 1)


def _split(files: Sequence[tuple[str, Path]], parts: int) -> list[list[FileRange]]:
    # At the same times in every file, found by binary search: the lines of a file are in time order.
    stamps = _split_times(max((path for _, path in files), key=lambda path: path.stat().st_size), parts)
    ranges: list[list[FileRange]] = [[] for _ in range(len(stamps) + 1)]
    for source, path in files:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            ends = bulk_merge.split_offsets(partial(_read_at, file.fileno()), size, stamps)
        for part, begin, end in zip(ranges, [0, *ends], ends, strict=False):
            part.append(FileRange(source, str(path), begin, end))
    return ranges


def _read_at(fd: int, at: int, count: int) -> bytes:
    return os.pread(fd, count, at)


def _split_times(largest: Path, parts: int) -> list[str]:
    """Return time stamps that split the largest file into parts of about the same size."""
    size = largest.stat().st_size
    with largest.open("rb") as file:
        stamps = []
        for number in range(1, parts):
            # The first line read is a part of one.
            file.seek(size * number // parts)
            file.readline()
            stamps.append(file.readline()[:30].decode("latin-1"))
    return stamps


def _write(part: Part, target: IO[bytes]) -> None:
    files = {file_range.source: file_range.chunks() for file_range in part.ranges}
    if not part.compress:
        for lines in bulk_merge.merged(files):
            target.write(lines)
        return
    # The first line of an uncompressed merge does not wait for this import.
    import gzip

    with gzip.GzipFile(fileobj=target, mode="wb", compresslevel=_COMPRESSION, mtime=0) as compressed:
        for lines in bulk_merge.merged(files):
            compressed.write(lines)


class _MergeProcess:
    """A process that merges a part into a temporary file; concatenated gzip files are a valid one (RFC 1952)."""

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
        """Wait for the process, and copy its result; raise OSError if it failed."""
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
