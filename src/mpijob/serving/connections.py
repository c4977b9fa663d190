"""Connections to a server: how long one may be idle, and how many a client address may have.

A connection is idle before its first request, between requests, and while the unread rest of a body arrives.
Each idle period ends after `HEAD_SECONDS`, whatever was sent meanwhile. The number of idle connections is
limited: the one that has been idle longest is closed. So a client that opens connections without sending
requests does not block others.
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

# Key in a request's state: the common name of a verified client certificate.
CLIENT_NAME = "client_name"
_log = logging.getLogger(__name__)
# Time limit for the first line and headers of a request, counted from the previous response.
HEAD_SECONDS = 20.0
# Idle connections that are kept.
MAX_IDLE_CONNECTIONS = 512
# Connections refused in one go before other work gets its turn.
_MAX_REFUSED_AT_ONCE = 64
_WARNING_INTERVAL_SECONDS = 60.0


class IdleConnections:
    """The idle connections, the longest idle first."""

    def __init__(self, limit: int = MAX_IDLE_CONNECTIONS) -> None:
        self._limit = limit
        self._connections: dict[TimedProtocol, None] = {}

    def add(self, connection: TimedProtocol) -> None:
        """Add an idle connection; close the one that has been idle longest if there are too many."""
        self._connections.pop(connection, None)
        self._connections[connection] = None
        while len(self._connections) > self._limit:
            oldest = next(iter(self._connections))
            del self._connections[oldest]
            oldest.close_if_idle()

    def discard(self, connection: TimedProtocol) -> None:
        self._connections.pop(connection, None)


class TimedProtocol(H11Protocol):
    """Reads requests, and closes connections that do not finish a request in time."""

    idle: IdleConnections
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        if certificate := transport.get_extra_info("peercert"):
            # uvicorn copies this state into the scope of every request of the connection.
            self.app_state = {**self.app_state, CLIENT_NAME: _common_name(certificate)}
        self._start_idle()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # Only once the headers are complete: single bytes do not extend the time.
        if self._busy:
            self._stop_idle()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # A pipelined request may have started already.
        if not self._busy and not self.transport.is_closing():
            self._start_idle()

    def handle_websocket_upgrade(self, event: Any) -> None:
        # Another protocol object takes over the connection; this one must not close it.
        self._stop_idle()
        super().handle_websocket_upgrade(event)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_idle()
        super().connection_lost(exc)

    def close_if_idle(self) -> None:
        """Close the connection at once unless a request is being answered."""
        if not self._busy:
            self._stop_idle()
            self.transport.abort()

    @property
    def _busy(self) -> bool:
        # None before the first request.
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def _start_idle(self) -> None:
        self._stop_idle()
        self.idle.add(self)
        self._timer = self.loop.call_later(HEAD_SECONDS, self.close_if_idle)

    def _stop_idle(self) -> None:
        self.idle.discard(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _common_name(certificate: dict[str, Any]) -> str:
    pairs = (pair for names in certificate.get("subject", ()) for pair in names)
    return next((str(value) for key, value in pairs if key == "commonName"), "")


def limit_handshakes(loop: asyncio.AbstractEventLoop, *, encrypted: bool) -> None:
    """Limit TLS handshakes of this loop's servers to the time of a request's headers."""
    if encrypted:
        # uvicorn has no such setting, and asyncio's default is a minute.
        bounded = partial(loop.create_server, ssl_handshake_timeout=HEAD_SECONDS)
        loop.create_server = bounded  # type: ignore[method-assign]  # there is no other way, see above


def new_protocol_class() -> type[TimedProtocol]:
    """Return the protocol class of one server, with its own set of idle connections."""
    return type("ServerProtocol", (TimedProtocol,), {"idle": IdleConnections()})


class Listener(socket.socket):
    """A listening socket that limits connections per client address, before TLS begins.

    `is_limited` returns whether an address is limited: a trusted proxy connects for many users.
    """

    def __init__(self, fileno: int, limit: int, is_limited: Callable[[str], bool]) -> None:
        super().__init__(fileno=fileno)
        self._limit, self._is_limited = limit, is_limited
        self._open: dict[str, int] = {}
        self._warned: dict[str, float] = {}

    def accept(self) -> tuple[socket.socket, Any]:
        """Return the next connection from an address below its limit; others are closed.

        Raise BlockingIOError after some refusals, which the event loop takes for an empty queue.
        """
        for _ in range(_MAX_REFUSED_AT_ONCE):
            connection, address = super().accept()
            peer = address[0] if isinstance(address, tuple) else ""
            if not self._limit or not self._is_limited(peer):
                return connection, address
            if self._open.get(peer, 0) < self._limit:
                self._open[peer] = self._open.get(peer, 0) + 1
                return _CountedSocket(connection, partial(self._release, peer)), address
            connection.close()
            self._warn(peer)
        raise BlockingIOError

    def _release(self, peer: str) -> None:
        self._open[peer] -= 1
        if not self._open[peer]:
            del self._open[peer]
            self._warned.pop(peer, None)

    def _warn(self, peer: str) -> None:
        now = time.monotonic()
        if now - self._warned.get(peer, -_WARNING_INTERVAL_SECONDS) >= _WARNING_INTERVAL_SECONDS:
            self._warned[peer] = now
            _log.warning(
                "%s has %d open connections, more are refused: add a proxy to trusted_proxies,"
                " or raise connections_per_address",
                peer,
                self._limit,
            )


class _CountedSocket(socket.socket):
    """An accepted connection that reports when it is closed."""

    def __init__(self, connection: socket.socket, release: Callable[[], None]) -> None:
        super().__init__(connection.family, connection.type, connection.proto, fileno=connection.detach())
        self._release: Callable[[], None] | None = release

    def close(self) -> None:
        super().close()
        # May be called more than once.
        release, self._release = self._release, None
        if release is not None:
            release()
