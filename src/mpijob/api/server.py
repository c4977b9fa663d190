"""Serving until told to stop, on a socket that the command line has opened already.

`mpijob ui` binds the address, prints it with its token and becomes this process: the two faces do not know each
other, and the token is never in an argument or a variable of the environment (see `__main__`).
"""

from __future__ import annotations

import asyncio
import resource
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from importlib.util import find_spec

import msgspec
import uvicorn
from starlette.types import ASGIApp

from mpijob.api.app import application
from mpijob.api.auth.client_address import Proxies
from mpijob.api.auth.cluster_token import TokenAuth
from mpijob.api.auth.sessions import CookieAuth
from mpijob.api.handlers.metrics import metrics_page
from mpijob.api.live import audit_stream
from mpijob.api.request_context import AppState
from mpijob.client import AsyncClient
from mpijob.client.audit.recorder import OFF, audit_directory
from mpijob.client.multiuser.sessions import cluster_guests
from mpijob.serving import connections, server
from mpijob.settings import Settings

_THREADS = 32  # an engine's calls block; each open log has a thread beside these
_CONNECTIONS = 1500  # with a request that is being answered
_FILES = 8192


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
    settings = options.settings
    proxies = Proxies(settings.trusted_proxies)
    listening = connections.Listener(
        options.socket, settings.connections_per_address, lambda peer: not proxies.speaks_for_many(peer)
    )
    _allow_files()
    loop = asyncio.get_running_loop()
    connections.limit_handshakes(loop, encrypted=options.tls is not None)
    loop.set_default_executor(ThreadPoolExecutor(_THREADS, thread_name_prefix="asked"))
    async with AsyncClient(namespace=options.namespace, settings=options.settings) as client:
        door = _login(options) if options.login else await _gate(options, client, listening)
        room = AppState(client, door, metrics_page(options.settings, options.namespace))
        served = uvicorn.Server(config(application(room), options.tls))
        ready = asyncio.create_task(room.parsers.start())  # the first document finds it warm
        with _audit_copied(options, client):
            await served.serve(sockets=[listening])
        ready.cancel()
    return 0 if served.started else 1


def config(app: ASGIApp, tls: tuple[str, str] | None = None) -> uvicorn.Config:
    """Return how the page's requests are read."""
    certificate, key = tls or (None, None)
    return server.server_config(
        app,
        connections.new_protocol_class(),
        ws="wsproto" if find_spec("wsproto") else "none",
        limit_concurrency=_CONNECTIONS + connections.MAX_IDLE_CONNECTIONS,
        ws_max_size=4 << 10,
        ssl_certfile=certificate,
        ssl_keyfile=key,
    )


def _allow_files() -> None:
    """Let connections not fail for want of descriptors: a login shell's usual limit is 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def _gate(options: Options, client: AsyncClient, listening: socket.socket) -> CookieAuth:
    port = listening.getsockname()[1]
    user = (await client.whoami()).user
    gate = CookieAuth(user, options.hosts, cookie=f"mpijob-session-{port}")  # cookies do not tell ports apart
    gate.invite(options.token)
    return gate


def _audit_copied(options: Options, client: AsyncClient) -> AbstractContextManager[None]:
    """Let the cluster's log collection have a copy of the audit, where the server is for everybody."""
    if not options.login or options.settings.audit == OFF:
        return nullcontext()
    return audit_stream.copied(audit_directory(client.backend, options.settings))


def _login(options: Options) -> TokenAuth:
    guests = cluster_guests(options.settings, options.namespace)
    return TokenAuth(options.hosts, guests, sign_out=options.sign_out)
