"""An answer that arrives line by line for as long as it takes: a pod's log, a watch.

The body is read piece by piece from the line itself: a reader may wait a little, look around, and wait on.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Iterator

from mpijob.backends.kubernetes.client.api_errors import CUT, IDLE, ApiError
from mpijob.backends.kubernetes.client.http import Open, Request
from mpijob.backends.kubernetes.client.http1 import PIECE, Body, IncompleteRead


class Stream:
    """The lines of an answer, each with its end; `close` may be called from any thread.

    A line longer than `longest` keeps its beginning; how much was left out stands at its end.
    """

    def __init__(self, opened: Open, request: Request, server: str, longest: int | None) -> None:
        self._opened = opened
        self._request = request
        self._server = server
        self._lines = _Lines(longest)
        self._body: Body | None = None
        self._ready: list[bytes] = []  # in reverse
        self._over = False
        self._reading = threading.Lock()
        self._heard = time.monotonic()

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __next__(self) -> bytes:
        self.wait(None)
        if not self._ready:
            raise StopIteration
        return self._ready.pop()

    def wait(self, seconds: float | None) -> bool:
        """Return whether there is a line, or the end, within this time; raise ApiError for a broken stream."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not self._ready and not self._over:
            if not self._fill(deadline):
                return False
        return True

    def close(self) -> None:
        """End the stream; a thread that waits for a line is woken."""
        self._over = True
        with contextlib.suppress(OSError):
            # Not the line's own method: that one also takes TLS away under a reading thread.
            socket.socket.shutdown(self._opened.connection.sock, socket.SHUT_RDWR)
        if self._reading.acquire(blocking=False):
            try:
                self._release()
            finally:
                self._reading.release()

    def _release(self) -> None:
        self._over = True
        self._opened.connection.close()

    def _fill(self, deadline: float | None) -> bool:
        """Take in what arrives until the deadline; return whether anything did, be it the end."""
        with self._reading:
            if self._over:
                return True
            try:
                piece = self._receive(deadline)
            except (ApiError, IncompleteRead, OSError, ValueError) as error:
                closed = self._over
                self._release()
                if closed:
                    return True
                raise self._broken(error) from error
            if piece is None:
                return False
            if self._body is None or self._body.over or self._over:
                self._release()
        self._heard = time.monotonic()
        self._ready = self._lines.feed(piece, last=self._over)
        return True

    def _receive(self, deadline: float | None) -> bytes | None:
        """Return the next part of the body, or None at the deadline."""
        line = self._opened.connection.sock
        if self._body is None:
            early = self._begun(deadline)
            if early is None:
                return None
            if early or (self._body is not None and self._body.over):
                return early
        assert self._body is not None
        limit = self._limit(deadline)
        try:
            line.settimeout(limit)
            piece = line.recv(PIECE)
        except (TimeoutError, BlockingIOError, ssl.SSLWantReadError):
            if self._silent_too_long():
                raise TimeoutError from None
            return None
        return self._body.feed(piece)

    def _begun(self, deadline: float | None) -> bytes | None:
        """Wait for the answer's head; return what came along with it, or None at the deadline."""
        if not self._opened.awaits(self._limit(deadline)):
            if self._silent_too_long():
                raise TimeoutError
            return None
        self._body = Body(self._opened.head())
        early = self._opened.connection.taken()  # what was read together with the head
        return self._body.feed(early) if early else b""

    def _limit(self, deadline: float | None) -> float | None:
        """Return how long to wait now: until the deadline or until the line must be taken for dead."""
        limits = [] if deadline is None else [deadline]
        if self._request.seconds is not None:
            limits.append(self._heard + self._request.seconds)
        return max(min(limits) - time.monotonic(), 0.0) if limits else None

    def _silent_too_long(self) -> bool:
        return self._request.seconds is not None and time.monotonic() >= self._heard + self._request.seconds

    def _broken(self, error: Exception) -> ApiError:
        if isinstance(error, ApiError):
            return error
        silent = isinstance(error, TimeoutError)
        what = f"said nothing for {self._request.seconds or 0:g} s" if silent else "cut the stream"
        return ApiError(
            f"{self._server} {what}",
            reason=IDLE if silent else CUT,
            server=self._server,
            method=self._request.method,
            path=self._request.path,
        )


class _Lines:
    """Cuts a body into lines."""

    def __init__(self, longest: int | None) -> None:
        self._longest = longest
        self._rest = b""
        self._left_out = 0

    def feed(self, piece: bytes, *, last: bool) -> list[bytes]:
        """Return the lines that are whole now, in reverse; at the end also one without an end."""
        first, *others = piece.split(b"\n")
        self._extend(first)
        whole = []
        for line in others:
            whole.append(self._take(b"\n"))
            self._extend(line)
        if last and self._rest:
            whole.append(self._take(b""))
        whole.reverse()
        return whole

    def _extend(self, text: bytes) -> None:
        self._rest += text
        if self._longest is not None and len(self._rest) > self._longest:
            self._left_out += len(self._rest) - self._longest
            self._rest = self._rest[: self._longest]

    def _take(self, end: bytes) -> bytes:
        line, left_out = self._rest, self._left_out
        self._rest, self._left_out = b"", 0
        return line + (b" [%d bytes left out]" % left_out if left_out else b"") + end
