"""Writing the CRI log files of one attempt.

A full disk must not stop a rank: what cannot be written is counted and marked in the log as a gap
once there is room again. Reading is in `logs`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from mpijob.observation import cri

_MUCH_BYTES = 4096


class LogFile:
    """One source's log (launcher, worker or rank); both of its streams go into the same file."""

    def __init__(self, path: Path, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._path = path
        self._now_ns = now_ns
        self._fd: int | None = None  # opened with the first line: most sources of a short job say nothing
        self._stampers = {name: cri.Stamper(name) for name in ("stdout", "stderr")}
        self.lost_bytes = 0
        self._torn = False  # the last line that is there is not whole

    def feed(self, stream: str, data: bytes) -> None:
        """Store what a pipe said."""
        now = self._now_ns()
        self._write(self._stampers[stream].feed(data, now), now)

    def finish(self, stream: str) -> None:
        """Store the rest of a stream that has ended."""
        now = self._now_ns()
        self._write(self._stampers[stream].flush(now), now)

    def say(self, text: str) -> None:
        """Store a line of our own, on stderr."""
        now = self._now_ns()
        self._write([cri.format_line(now, "stderr", text.encode(), False)], now)

    def close(self) -> None:
        """Store what is left and close the file."""
        for stream in self._stampers:
            self.finish(stream)
        if self._fd is not None:
            os.close(self._fd)

    def _write(self, lines: list[bytes], now: int) -> None:
        if not lines:
            return
        data = b"".join(lines)
        if self.lost_bytes:
            gap = f"mpijob: {self.lost_bytes} bytes of output are missing here: the disk was full".encode()
            data = (b"\n" if self._torn else b"") + cri.format_line(now, "stderr", gap, False) + data
        try:
            if self._fd is None:
                self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            written = os.write(self._fd, data)
        except OSError:
            written = 0
        if written == len(data):
            self.lost_bytes, self._torn = 0, False
        else:
            self.lost_bytes += len(data) - written
            self._torn = data[written - 1 : written] != b"\n" if written else self._torn


class Pump:
    """Reads one pipe into a log file, as far as there is something."""

    def __init__(self, fd: int, log: LogFile, stream: str) -> None:
        self.fd = fd
        self._log = log
        self._stream = stream
        self.ended = False
        self.flows = False  # whether much was there the last time
        os.set_blocking(fd, False)

    def pull(self, rounds: int = 4) -> None:
        """Take what is there, at most a few buffers so that other pipes get their turn."""
        self.flows = False
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
            if len(data) < _MUCH_BYTES:
                return
            self.flows = True

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
