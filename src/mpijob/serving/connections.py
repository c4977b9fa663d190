"""Connections to a server: how long one may be without a request, and how many an address may have.

A connection waits before its first request, between two, and while the rest of a body comes that nobody reads. Each
wait ends after `HEAD_SECONDS`, whatever was sent meanwhile. Of those that wait only so many are kept: the one
that has waited longest makes way. So whoever opens connections without asking anything takes nobody else's place.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

CLIENT_NAME = "client_name"  # in a request's state: the name in a client's certificate, where it was verified
_log = logging.getLogger(__name__)
HEAD_SECONDS = 20.0  # for a request's first line and headers, from the last answer on
WAITING = 512  # connections without a request
_REFUSED_AT_ONCE = 64  # then others have their turn
_WARN_SECONDS = 60.0


class Waiting:
    """The connections without a request, the one that waits longest first."""

    def __init__(self, most: int = WAITING) -> None:
        self._most = most
        self._lines: dict[TimedProtocol, None] = {}

    def add(self, line: TimedProtocol) -> None:
        """Let a connection wait; the one that has waited longest is ended where there are too many."""
        self._lines.pop(line, None)
        self._lines[line] = None
        while len(self._lines) > self._most:
            oldest = next(iter(self._lines))
            del self._lines[oldest]
            oldest.hang_up()

    def discard(self, line: TimedProtocol) -> None:
        """Let a connection wait no more."""
        self._lines.pop(line, None)


class TimedProtocol(H11Protocol):
    """Reads requests, and hangs up on who does not finish one in time, the first and each that follows."""

    waiting: Waiting
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Begin to wait for a request; what its certificate says of a client is known to every one."""
        super().connection_made(transport)
        if certificate := transport.get_extra_info("peercert"):
            self.app_state = {**self.app_state, CLIENT_NAME: _common_name(certificate)}
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Wait no more once a request is there."""
        super().data_received(data)
        if self._busy:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        """Wait for the next request, unless it has come already."""
        super().on_response_complete()
        if not self._busy and not self.transport.is_closing():
            self._wait()

    def handle_websocket_upgrade(self, event: Any) -> None:
        """Leave the connection to another protocol."""
        self._stop_waiting()
        super().handle_websocket_upgrade(event)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def hang_up(self) -> None:
        """End the connection at once, unless a request is being answered."""
        if not self._busy:
            self._stop_waiting()
            self.transport.abort()

    @property
    def _busy(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        return cycle is not None and not cycle.response_complete

    def _wait(self) -> None:
        self._stop_waiting()
        self.waiting.add(self)
        self._timer = self.loop.call_later(HEAD_SECONDS, self.hang_up)

    def _stop_waiting(self) -> None:
        self.waiting.discard(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _common_name(certificate: dict[str, Any]) -> str:
    pairs = (pair for names in certificate.get("subject", ()) for pair in names)
    return next((str(value) for key, value in pairs if key == "commonName"), "")


def bound_handshakes(loop: asyncio.AbstractEventLoop, *, encrypted: bool) -> None:
    """Let TLS handshakes of servers of this loop take no longer than a request's headers.

    uvicorn hands no such limit on; asyncio's own is a minute for whoever opens a connection and says nothing.
    """
    if encrypted:
        bounded = partial(loop.create_server, ssl_handshake_timeout=HEAD_SECONDS)
        loop.create_server = bounded  # type: ignore[method-assign]  # as said


def protocol() -> type[TimedProtocol]:
    """Return the protocol of one server."""
    return type("ServerProtocol", (TimedProtocol,), {"waiting": Waiting()})


class Listener(socket.socket):
    """A listening socket on which one address has only so many connections; counted before TLS begins.

    `counted` says of an address whether it counts: a proxy speaks for many people.
    """

    def __init__(self, fileno: int, most: int, counted: Callable[[str], bool]) -> None:
        super().__init__(fileno=fileno)
        self._most, self._counted = most, counted
        self._held: dict[str, int] = {}
        self._warned: dict[str, float] = {}

    def accept(self) -> tuple[socket.socket, Any]:
        """Return the next connection of somebody who has not too many."""
        for _ in range(_REFUSED_AT_ONCE):
            line, address = super().accept()
            peer = address[0] if isinstance(address, tuple) else ""
            if not self._most or not self._counted(peer):
                return line, address
            if self._held.get(peer, 0) < self._most:
                self._held[peer] = self._held.get(peer, 0) + 1
                return _Counted(line, partial(self._release, peer)), address
            line.close()
            self._warn(peer)
        raise BlockingIOError

    def _release(self, peer: str) -> None:
        self._held[peer] -= 1
        if not self._held[peer]:
            del self._held[peer]
            self._warned.pop(peer, None)

    def _warn(self, peer: str) -> None:
        now = time.monotonic()
        if now - self._warned.get(peer, -_WARN_SECONDS) >= _WARN_SECONDS:
            self._warned[peer] = now
            _log.warning(
                "%s has %d connections open, more are refused: a proxy belongs into trusted_proxies,"
                " the number is connections_per_address",
                peer,
                self._most,
            )


class _Counted(socket.socket):
    """An accepted connection that says when it is closed."""

    def __init__(self, line: socket.socket, release: Callable[[], None]) -> None:
        super().__init__(line.family, line.type, line.proto, fileno=line.detach())
        self._release: Callable[[], None] | None = release

    def close(self) -> None:
        """Close the connection, and let its place go to another."""
        super().close()
        release, self._release = self._release, None
        if release is not None:
            release()
