"""Writing the CRI log files of one attempt.

A full disk must not stop a rank: what cannot be written is counted and marked in the log as a gap
once there is room again. The last of a disk is left to the job's state: without it, nobody could even say that
the job has ended, or delete it. The values of the job's secrets are masked before anything is written. Reading is in
`log_reader`.
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
_MANY_BYTES = 4096
_CHECK_BYTES = 64 << 10  # that are written between two looks at the disk
_MAX_FILES = 256  # files that may grow meanwhile


class LogFile:
    """One source's log (launcher, worker or rank); both of its streams go into the same file."""

    def __init__(
        self, path: Path, now_ns: Callable[[], int] = time.time_ns, masked_values: tuple[str, ...] = ()
    ) -> None:
        self._path = path
        self._now_ns = now_ns
        self._fd: int | None = None  # opened with the first line: most sources of a short job say nothing
        self._writers = {name: cri.CriWriter(name) for name in _STREAMS}
        self._redactors = _redactors(masked_values) if masked_values else {}
        self.lost_bytes = 0
        self._ends_mid_line = False  # the last line that is there is not whole
        self._until_check = 0

    def feed(self, stream: str, data: bytes) -> None:
        """Store what a pipe said."""
        now = self._now_ns()
        if self._redactors:
            data = self._redactors[stream].feed(data)
        self._write(self._writers[stream].feed(data, now), now, len(data))

    def finish(self, stream: str) -> None:
        """Store the rest of a stream that has ended."""
        now, stamper = self._now_ns(), self._writers[stream]
        if self._redactors:
            self._write(stamper.feed(self._redactors[stream].flush(), now), now)
        self._write(stamper.flush(now), now)

    def write_line(self, text: str) -> None:
        """Store a line of our own, on stderr."""
        now = self._now_ns()
        self._write([cri.format_line(now, "stderr", text.encode(), False)], now)

    def close(self) -> None:
        """Store what is left and close the file."""
        for stream in self._writers:
            self.finish(stream)
        if self.lost_bytes:
            self._store(self._gap(self._now_ns()))
        if self._fd is not None:
            os.close(self._fd)

    def _write(self, lines: list[bytes], now: int, said: int = 0) -> None:
        if not lines:
            return
        data = b"".join(lines)
        if self.lost_bytes:
            data = self._gap(now) + data
        written = self._store(data) if self._has_space(len(data)) else 0
        if written == len(data):
            self.lost_bytes, self._ends_mid_line = 0, False
        else:
            missing = len(data) - written  # time stamps included, which nobody said
            self.lost_bytes += min(said, missing) if said else missing
            self._ends_mid_line = data[written - 1 : written] != b"\n" if written else self._ends_mid_line

    def _gap(self, now: int) -> bytes:
        """Return the line that says what is missing; one that was cut off is ended before."""
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
        """Whether the disk has more than what is left to the job's state; looked at now and then."""
        self._until_check -= size
        if self._until_check > 0:
            return True
        spare = disk_reserve.available_bytes(self._path.parent)
        self._until_check = min(_CHECK_BYTES, spare // _MAX_FILES) if spare > size else 0
        return spare > size


def _redactors(masked_values: tuple[str, ...]) -> dict[str, StreamRedactor]:
    from mpijob.observation.redaction.stream import StreamRedactor  # most jobs have no secrets

    return {name: StreamRedactor(masked_values) for name in _STREAMS}


class LogTarget(Protocol):
    """Where a pipe's data goes."""

    def feed(self, stream: str, data: bytes) -> None:
        """Store what a pipe said."""

    def finish(self, stream: str) -> None:
        """Store the rest of a stream that has ended."""


class PipeReader:
    """Reads one pipe into a log file, as far as there is something."""

    def __init__(self, fd: int, log: LogTarget, stream: str) -> None:
        self.fd = fd
        self._log = log
        self._stream = stream
        self.ended = False
        self.has_more = False  # whether much was there the last time
        os.set_blocking(fd, False)

    def read_some(self, rounds: int = 4) -> None:
        """Take what is there, at most a few buffers so that other pipes get their turn."""
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
        """Take all that is left."""
        while not self.ended:
            try:
                data = os.read(self.fd, 65536)
            except BlockingIOError:
                break
            if not data:
                break
            self._log.feed(self._stream, data)
        self._log.finish(self._stream)
