"""Download a job's log: each stream as a file, or all merged by time.

The content is what was recorded: nothing more is masked, and control characters stay. An engine that has the
files can merge them itself, many times faster; otherwise lines are read one by one.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from msgspec.structs import replace

from mpijob.backends.capabilities import SupportsMergedLogs
from mpijob.backends.streams import close
from mpijob.client.observe import logs
from mpijob.errors import BackendError, InvalidJob
from mpijob.model import LogLine, LogQuery, Mark
from mpijob.observation.logs import cri

if TYPE_CHECKING:
    from mpijob.backends.protocol import Backend
    from mpijob.model import JobRef

_HELD_BYTES = 64 * 1024
_ENDINGS = {"stdout": "out", "stderr": "err"}


def download(
    ref: JobRef,
    backend: Backend,
    query: LogQuery,
    target: str | Path | IO[bytes],
    *,
    merged: bool,
    compress: bool,
) -> tuple[Path, ...]:
    query = replace(query, follow=False, tidy=False, fold=False, find="", before=0, after=0)
    if not merged:
        if not isinstance(target, (str, Path)):
            raise InvalidJob("separate streams require a directory; a single file requires a merged log")
        with _write_errors(target):
            return _streams(ref, backend, query, Path(target), compress)
    with _opened(target) as file:
        query = logs.resolved(ref, backend, query)
        merged_logs = backend.capability(SupportsMergedLogs)
        if merged_logs is None or not merged_logs.merge_logs(ref, query, file, compress=compress):
            _lines(ref, backend, query, file, compress)
    return (Path(target),) if isinstance(target, (str, Path)) else ()


@contextmanager
def _opened(target: str | Path | IO[bytes]) -> Iterator[IO[bytes]]:
    if not isinstance(target, (str, Path)):
        yield target
        return
    if os.path.isdir(target):
        raise InvalidJob(
            f"{target} is a directory; a merged log needs a file name",
            hint=f"name a file: {os.path.join(target, 'job.log')}; each stream has its own without --merged",
        )
    with _write_errors(target), _replacing(os.path.realpath(target)) as file:
        yield file


@contextmanager
def _replacing(path: str) -> Iterator[IO[bytes]]:
    """Write a file beside the target and then replace that, which keeps its old content until then."""
    # A pipe or a device cannot be replaced.
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, "wb") as file:
            yield file
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    beside = f"{path}.{os.getpid()}.part"
    try:
        with open(beside, "wb") as file:
            if os.path.exists(path):
                os.chmod(beside, stat.S_IMODE(os.stat(path).st_mode))
            yield file
        os.replace(beside, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside)
        raise


@contextmanager
def _write_errors(target: str | Path) -> Iterator[None]:
    """Translate errors of writing."""
    try:
        yield
    except OSError as error:
        raise BackendError(
            f"cannot write the log to {target}: {error.strerror or error}",
            hint="name a writable path with free space",
        ) from error


def _lines(ref: JobRef, backend: Backend, query: LogQuery, file: IO[bytes], compress: bool) -> None:
    packed = _packing(file) if compress else file
    stream = logs.lines(ref, backend, query)
    try:
        for line in stream:
            packed.write(b"%s [%s] %s\n" % (cri.stamp(line.time), line.source.encode(), line.text))
    finally:
        close(stream)
        if compress:
            packed.close()


def _packing(file: IO[bytes]) -> IO[bytes]:
    import gzip

    return cast("IO[bytes]", gzip.GzipFile(fileobj=file, mode="wb", mtime=0))


def _streams(
    ref: JobRef, backend: Backend, query: LogQuery, directory: Path, compress: bool
) -> tuple[Path, ...]:
    stream_files, stream = _StreamFiles(directory, compress), logs.lines(ref, backend, query)
    try:
        for line in stream:
            stream_files.put(line)
    finally:
        close(stream)
    return stream_files.done()


class _StreamFiles:
    """One file for each stream of each source; keeps a buffer for each, and no file open."""

    def __init__(self, directory: Path, compress: bool) -> None:
        self._directory = directory
        self._compress = compress
        self._held: dict[Path, bytearray] = {}

    def put(self, line: LogLine) -> None:
        ending = _ENDINGS.get(line.stream, "out") + (".gz" if self._compress else "")
        path = self._directory / f"attempt-{line.attempt}" / f"{line.source.lower()}.{ending}"
        if path not in self._held:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"")
            self._held[path] = bytearray()
        held = self._held[path]
        held += line.text
        if not line.partial and Mark.OPEN not in line.marks:
            held += b"\n"
        if len(held) > _HELD_BYTES:
            self._write(path)

    def _write(self, path: Path) -> None:
        data = self._held[path]
        # Opened for each write: a job of many ranks has more streams than a process may have open files.
        with path.open("ab") as file:
            packed = _packing(file) if self._compress else file
            packed.write(data)
            if self._compress:
                packed.close()
        data.clear()

    def done(self) -> tuple[Path, ...]:
        for path in self._held:
            self._write(path)
        return tuple(sorted(self._held))
