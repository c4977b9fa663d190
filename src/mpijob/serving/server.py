"""An ASGI application served from a thread of its own, beside what else a process does."""

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

_END_SECONDS = 5.0
_log = logging.getLogger(__name__)


def listening(address: str, port: int, *, what: str) -> socket.socket:
    """Return a socket that listens; raise BackendError where it cannot."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        return socket.create_server((address, port), family=family, backlog=256)
    except OSError as error:
        raise BackendError(
            f"{what} cannot listen on {address}:{port}: {error.strerror or error}", hint="choose another port"
        ) from error


def tls_context(certificate: str = "", key: str = "", *, client_ca: str = "") -> ssl.SSLContext:
    """Return how TLS is spoken; with `client_ca`, clients may show a certificate of that authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if certificate:
        context.load_cert_chain(certificate, key)
    if client_ca:
        context.load_verify_locations(client_ca)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def config(app: ASGIApp, protocol: type[connections.TimedProtocol], **more: Any) -> uvicorn.Config:
    """Return how requests are read: bounded in size, number and time, and no header is believed about who asks."""
    options: dict[str, Any] = {
        "http": protocol,
        "ws": "none",
        "log_level": "warning",
        "access_log": False,
        "server_header": False,
        "proxy_headers": False,
        "timeout_graceful_shutdown": 1,
        "h11_max_incomplete_event_size": 32 << 10,
    }
    return uvicorn.Config(app, **options | more)


class Server:
    """One service; it answers while it is open."""

    def __init__(
        self,
        app: ASGIApp,
        sock: socket.socket,
        *,
        tls: ssl.SSLContext | None = None,
        most: int = 512,
        of_one: int = 128,
    ) -> None:
        """Serve on a listening socket: at most so many connections, and of one address so many."""
        self.port = int(sock.getsockname()[1])
        self._listener = connections.Listener(sock.detach(), of_one, lambda peer: True)
        settings = config(app, connections.protocol(), limit_concurrency=most, lifespan="off")
        settings.load()
        settings.ssl = tls
        self._server = uvicorn.Server(settings)
        self._thread = threading.Thread(
            target=self._run, args=(tls is not None,), daemon=True, name="serving"
        )
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        while not self._server.started and not self._ended.wait(0.01):
            pass
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(_END_SECONDS)

    def _run(self, encrypted: bool) -> None:
        try:
            asyncio.run(self._serve(encrypted))
        except Exception:  # the outermost place of this thread
            _log.exception("the server has ended")
        finally:
            self._ended.set()

    async def _serve(self, encrypted: bool) -> None:
        loop = asyncio.get_running_loop()
        connections.bound_handshakes(loop, encrypted=encrypted)
        await self._server.serve(sockets=[self._listener])
