"""The log files of one attempt, in CRI format: written from pipes, with values of secrets masked.

A full disk does not stop a rank: bytes that cannot be written are counted, and marked as a gap when there is space
again. `attempts.log_reader` reads the files.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from mpijob.history.storage import disk_reserve
from mpijob.observation.logs import cri

if TYPE_CHECKING:
    from mpijob.observation.redaction.stream import StreamRedactor

_STREAMS = ("stdout", "stderr")
# A read of fewer bytes has probably emptied the pipe: another one would cost a system call for nothing.
_MANY_BYTES = 4096
# Written to one file between two checks of the disk space; `_MAX_FILES` may grow meanwhile.
_CHECK_BYTES = 64 << 10
_MAX_FILES = 256


class LogFile:
    """The log file of one source (launcher, worker or rank), with both of its streams."""

    def __init__(
        self, path: Path, now_ns: Callable[[], int] = time.time_ns, masked_values: tuple[str, ...] = ()
    ) -> None:
        self._path = path
        self._now_ns = now_ns
        # Opened for the first line: most sources of a short job print nothing.
        self._fd: int | None = None
        self._writers = {name: cri.CriWriter(name) for name in _STREAMS}
        self._redactors = _redactors(masked_values) if masked_values else {}
        self.lost_bytes = 0
        # Whether the last write on a full disk has cut a line.
        self._ends_mid_line = False
        self._until_check = 0

    def feed(self, stream: str, data: bytes) -> None:
        """Write data of a stream, which may end within a line."""
        now = self._now_ns()
        if self._redactors:
            data = self._redactors[stream].feed(data)
        self._write(self._writers[stream].feed(data, now), now, len(data))

    def finish(self, stream: str) -> None:
        """Write the rest of a stream that has ended."""
        now, writer = self._now_ns(), self._writers[stream]
        if self._redactors:
            self._write(writer.feed(self._redactors[stream].flush(), now), now)
        self._write(writer.flush(now), now)

    def write_line(self, text: str) -> None:
        """Write a line of mpijob's own, as stderr."""
        now = self._now_ns()
        self._write([cri.format_line(now, "stderr", text.encode(), False)], now)

    def close(self) -> None:
        """Write what is left, and close the file."""
        for stream in self._writers:
            self.finish(stream)
        if self.lost_bytes:
            self._store(self._gap(self._now_ns()))
        if self._fd is not None:
            os.close(self._fd)

    def _write(self, lines: list[bytes], now: int, payload_bytes: int = 0) -> None:
        if not lines:
            return
        data = b"".join(lines)
        if self.lost_bytes:
            data = self._gap(now) + data
        written = self._store(data) if self._has_space(len(data)) else 0
        if written == len(data):
            self.lost_bytes, self._ends_mid_line = 0, False
        else:
            # `data` has time stamps, which are not the job's output.
            missing = len(data) - written
            self.lost_bytes += min(payload_bytes, missing) if payload_bytes else missing
            self._ends_mid_line = data[written - 1 : written] != b"\n" if written else self._ends_mid_line

    def _gap(self, now: int) -> bytes:
        """Return a line about the missing bytes, after the end of a line that was cut."""
        text = f"mpijob: {self.lost_bytes} bytes of output are missing here: the disk was full"
        return (b"\n" if self._ends_mid_line else b"") + cri.format_line(now, "stderr", text.encode(), False)

    def _store(self, data: bytes) -> int:
        try:
            if self._fd is None:
                self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            return os.write(self._fd, data)
        except OSError:
            return 0

    def _has_space(self, size: int) -> bool:
        """Return whether the disk has space beyond the reserve."""
        # The reserve is for job states: without it a job could neither end nor be deleted. The less space there is, the
        # sooner is the next check, since all files together must not use up the reserve in between.
        self._until_check -= size
        if self._until_check > 0:
            return True
        spare = disk_reserve.available_bytes(self._path.parent)
        self._until_check = min(_CHECK_BYTES, spare // _MAX_FILES) if spare > size else 0
        return spare > size


def _redactors(masked_values: tuple[str, ...]) -> dict[str, StreamRedactor]:
    # Most jobs have no secrets.
    from mpijob.observation.redaction.stream import StreamRedactor

    return {name: StreamRedactor(masked_values) for name in _STREAMS}


class LogTarget(Protocol):
    """Where a pipe's data goes: a `LogFile` or a `StepOutput`."""

    def feed(self, stream: str, data: bytes) -> None: ...

    def finish(self, stream: str) -> None: ...


class PipeReader:
    """Reads one pipe into a log; the caller closes the descriptor."""

    def __init__(self, fd: int, log: LogTarget, stream: str) -> None:
        self.fd = fd
        self._log = log
        self._stream = stream
        self.ended = False
        # Whether the last `read_some` has probably not emptied the pipe.
        self.has_more = False
        os.set_blocking(fd, False)

    def read_some(self, rounds: int = 4) -> None:
        """Read what is in the pipe, at most a few buffers, so that other pipes are not delayed."""
        self.has_more = False
        for _ in range(rounds):
            try:
                data = os.read(self.fd, 65536)
            except BlockingIOError:
                return
            if not data:
                self.ended = True
                self._log.finish(self._stream)
                return
            self._log.feed(self._stream, data)
            if len(data) < _MANY_BYTES:
                return
            self.has_more = True

    def drain(self) -> None:
        """Read everything that is left, and finish the stream."""
        while not self.ended:
            try:
                data = os.read(self.fd, 65536)
            except BlockingIOError:
                break
            if not data:
                break
            self._log.feed(self._stream, data)
        self._log.finish(self._stream)
