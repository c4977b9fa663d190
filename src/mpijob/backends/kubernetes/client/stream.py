"""The lines of a response that does not end by itself: a pod's log, a watch."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
from collections.abc import Iterator

from mpijob.backends.kubernetes.client.api_errors import CUT, IDLE, ApiError
from mpijob.backends.kubernetes.client.http import Open, Request


class Stream:
    """Iterates over the lines, each with its line feed; `close` may be called from any thread.

    Of a line longer than `longest` bytes the beginning is kept, followed by how much was left out.
    """

    def __init__(self, opened: Open, request: Request, server: str, longest: int | None) -> None:
        self._opened = opened
        self._request = request
        self._server = server
        self._lines = _Lines(longest)
        # In reverse, so that the next line is popped from the end.
        self._ready: list[bytes] = []
        self._closed = False
        self._reading = threading.Lock()

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __next__(self) -> bytes:
        while not self._ready and not self._closed:
            self._fill()
        if not self._ready:
            raise StopIteration
        return self._ready.pop()

    def close(self) -> None:
        """End the stream; a thread that waits for a line is woken."""
        self._closed = True
        with contextlib.suppress(OSError):
            # SSLSocket.shutdown also drops the TLS object under the thread that reads from it.
            socket.socket.shutdown(self._opened.sock, socket.SHUT_RDWR)
        # Another thread that is reading closes the connection itself when its read returns.
        if self._reading.acquire(blocking=False):
            try:
                self._release()
            finally:
                self._reading.release()

    def _release(self) -> None:
        self._closed = True
        self._opened.close()

    def _fill(self) -> None:
        """Receive the next part; raise ApiError for a broken stream."""
        with self._reading:
            if self._closed:
                return
            try:
                piece = self._receive_part()
            except (ApiError, http.client.HTTPException, OSError, ValueError) as error:
                closed = self._closed
                self._release()
                if closed:
                    return
                raise self._broken(error) from error
            if not piece:
                self._release()
        self._ready = self._lines.feed(piece, last=self._closed)

    def _receive_part(self) -> bytes:
        """Return the next part of the body, b"" at its end; raise TimeoutError after `seconds` without data."""
        response = self._opened.begun(self._request.seconds)
        if response is None:
            raise TimeoutError
        self._opened.sock.settimeout(self._request.seconds)
        return response.read_block()

    def _broken(self, error: Exception) -> ApiError:
        if isinstance(error, ApiError):
            return error
        silent = isinstance(error, TimeoutError)
        what = f"sent no data for {self._request.seconds or 0:g} s" if silent else "closed the stream"
        return ApiError(
            f"{self._server} {what}",
            reason=IDLE if silent else CUT,
            server=self._server,
            method=self._request.method,
            path=self._request.path,
        )


class _Lines:
    """Splits a body into lines."""

    def __init__(self, longest: int | None) -> None:
        self._longest = longest
        self._rest = b""
        self._left_out = 0

    def feed(self, piece: bytes, *, last: bool) -> list[bytes]:
        """Return the complete lines, in reverse; with `last` also one without a line feed."""
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
