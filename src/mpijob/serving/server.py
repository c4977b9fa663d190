"""Serve an ASGI application from its own thread, with bounded connections (`connections`).

What is served is an application of `service` or of `api`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
from typing import TYPE_CHECKING, Any, Self

import uvicorn

from mpijob.errors import BackendError
from mpijob.serving import connections

if TYPE_CHECKING:
    from starlette.types import ASGIApp

_STOP_TIMEOUT_SECONDS = 5.0
_log = logging.getLogger(__name__)


def listen(address: str, port: int, *, name: str) -> socket.socket:
    """Return a listening socket; raise BackendError if the port is not available."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        return socket.create_server((address, port), family=family, backlog=256)
    except OSError as error:
        raise BackendError(
            f"{name} cannot listen on {address}:{port}: {error.strerror or error}", hint="choose another port"
        ) from error


def tls_context(certificate: str = "", key: str = "", *, client_ca: str = "") -> ssl.SSLContext:
    """Return a server's TLS context; with `client_ca`, clients may present a certificate of that CA."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if certificate:
        context.load_cert_chain(certificate, key)
    if client_ca:
        context.load_verify_locations(client_ca)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def server_config(
    app: ASGIApp, protocol: type[connections.TimedProtocol], **overrides: Any
) -> uvicorn.Config:
    """Return the uvicorn configuration: bounded in size, number and time; proxy headers are not trusted."""
    options: dict[str, Any] = {
        "http": protocol,
        "ws": "none",
        "log_level": "warning",
        "access_log": False,
        "server_header": False,
        "proxy_headers": False,
        "timeout_graceful_shutdown": 1,
        # Headers of one request.
        "h11_max_incomplete_event_size": 32 << 10,
    }
    return uvicorn.Config(app, **options | overrides)


class Server:
    """One server; it runs while its context is open."""

    def __init__(
        self,
        app: ASGIApp,
        sock: socket.socket,
        *,
        tls: ssl.SSLContext | None = None,
        max_connections: int = 512,
        max_per_address: int = 128,
    ) -> None:
        """Serve on a listening socket, with limits on connections in total and per client address."""
        self.port = int(sock.getsockname()[1])
        self._listener = connections.Listener(sock.detach(), max_per_address, lambda peer: True)
        protocol = connections.new_protocol_class()
        settings = server_config(app, protocol, limit_concurrency=max_connections, lifespan="off")
        settings.load()
        settings.ssl = tls
        self._server = uvicorn.Server(settings)
        self._thread = threading.Thread(
            target=self._run, args=(tls is not None,), daemon=True, name="serving"
        )
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        # uvicorn offers a flag instead of an event.
        while not self._server.started and not self._ended.wait(0.01):
            pass
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(_STOP_TIMEOUT_SECONDS)

    def _run(self, encrypted: bool) -> None:
        try:
            asyncio.run(self._serve(encrypted))
        except Exception:
            # The outermost handler of this thread.
            _log.exception("the server stopped unexpectedly")
        finally:
            self._ended.set()

    async def _serve(self, encrypted: bool) -> None:
        loop = asyncio.get_running_loop()
        connections.limit_handshakes(loop, encrypted=encrypted)
        await self._server.serve(sockets=[self._listener])
