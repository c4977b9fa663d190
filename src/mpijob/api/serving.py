"""Serving until told to stop, on a socket that the command line has opened already.

`mpijob ui` binds the address, prints it with its token and becomes this process: the two faces do not know each
other, and the token is never in an argument or a variable of the environment (see `__main__`).
"""

from __future__ import annotations

import asyncio
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.util import find_spec

import msgspec
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from mpijob.api import limits
from mpijob.api.app import application
from mpijob.api.asking import Room
from mpijob.api.gate import Gate
from mpijob.api.login import Login
from mpijob.api.metrics import metrics_page
from mpijob.client import AsyncClient
from mpijob.client.guests import cluster_guests
from mpijob.settings import Settings

_THREADS = 32  # an engine's calls block; each open log has a thread beside these
_CONNECTIONS = 1500


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line hands over: the listening socket, under which names, for whom.

    With `login` the server is for everybody whom the cluster knows, and `token` says nothing. `tls` are the files of
    certificate and key.
    """

    socket: int
    hosts: tuple[str, ...]
    settings: Settings
    token: str = ""
    namespace: str | None = None
    login: bool = False
    sign_out: str = ""
    tls: tuple[str, str] | None = None


def serve(options: Options) -> None:
    """Serve until SIGINT or SIGTERM."""
    with suppress(KeyboardInterrupt):  # Ctrl-C is how the page is ended
        sys.exit(asyncio.run(_serve(options)))


async def _serve(options: Options) -> int:
    listening = socket.socket(fileno=options.socket)
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(_THREADS, thread_name_prefix="asked"))
    async with AsyncClient(namespace=options.namespace, settings=options.settings) as client:
        door = _login(options) if options.login else await _gate(options, client, listening)
        room = Room(client, door, metrics_page(options.settings, options.namespace))
        server = uvicorn.Server(config(application(room), options.tls))
        await server.serve(sockets=[listening])
    return 0 if server.started else 1


def config(app: ASGIApp, tls: tuple[str, str] | None = None) -> uvicorn.Config:
    """Return how requests are read: bounded in size, number and time."""
    certificate, key = tls or (None, None)
    return uvicorn.Config(
        app,
        http=Hasty,
        ws="wsproto" if find_spec("wsproto") else "none",
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=1,
        h11_max_incomplete_event_size=32 << 10,
        limit_concurrency=_CONNECTIONS,
        ws_max_size=4 << 10,
        ssl_certfile=certificate,
        ssl_keyfile=key,
        proxy_headers=False,  # no header is believed about who asks
    )


async def _gate(options: Options, client: AsyncClient, listening: socket.socket) -> Gate:
    port = listening.getsockname()[1]
    user = (await client.port.whoami()).user
    gate = Gate(user, options.hosts, cookie=f"mpijob-session-{port}")  # cookies do not tell ports apart
    gate.invite(options.token)
    return gate


def _login(options: Options) -> Login:
    guests = cluster_guests(options.settings, options.namespace)
    return Login(options.hosts, guests, sign_out=options.sign_out)


class Hasty(H11Protocol):
    """Reads requests, and hangs up on who does not finish the first line and headers in time."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._slow = self.loop.call_later(limits.HEAD_SECONDS, self._hang_up)

    def _hang_up(self) -> None:
        if self.cycle is None and not self.transport.is_closing():
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._slow.cancel()
        super().connection_lost(exc)
