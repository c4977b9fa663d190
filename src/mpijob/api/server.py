"""Run the HTTP server until it is stopped, on a socket that the command line has opened.

`mpijob ui` binds the address, prints it with its token and replaces itself with this process. So the token is
never in an argument or an environment variable, which other users could read (see `__main__`).
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
from mpijob.client.multiuser.sessions import cluster_sessions
from mpijob.serving import connections, server
from mpijob.settings import Settings

# Calls of an engine block; each open log stream has a thread of its own beside these.
_THREADS = 32
# Connections with a request in progress.
_CONNECTIONS = 1500
_FILES = 8192


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options from the command line: the listening socket, host names and settings.

    With `login` users sign in at the cluster, and `token` is ignored. `tls` are the files of certificate and
    key.
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
    # Ctrl-C is the usual way to end it.
    with suppress(KeyboardInterrupt):
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
        authenticator = _login(options) if options.login else await _cookie_auth(options, client, listening)
        app_state = AppState(client, authenticator, metrics_page(options.settings, options.namespace))
        served = uvicorn.Server(config(application(app_state), options.tls))
        # Started now, so that the first document does not wait for the imports.
        ready = asyncio.create_task(app_state.parsers.start())
        with _audit_copied(options, client):
            await served.serve(sockets=[listening])
        ready.cancel()
    return 0 if served.started else 1


def config(app: ASGIApp, tls: tuple[str, str] | None = None) -> uvicorn.Config:
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
    # The usual soft limit of a login shell is 1024 descriptors, fewer than the connections that are allowed.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def _cookie_auth(options: Options, client: AsyncClient, listening: socket.socket) -> CookieAuth:
    port = listening.getsockname()[1]
    user = (await client.whoami()).user
    # Browsers send cookies to every port of a host: two servers need two names.
    auth = CookieAuth(user, options.hosts, cookie=f"mpijob-session-{port}")
    auth.invite(options.token)
    return auth


def _audit_copied(options: Options, client: AsyncClient) -> AbstractContextManager[None]:
    """Copy the audit log to the cluster's log collection, on a server of many users."""
    if not options.login or options.settings.audit == OFF:
        return nullcontext()
    return audit_stream.copied(audit_directory(client.backend, options.settings))


def _login(options: Options) -> TokenAuth:
    sessions = cluster_sessions(options.settings, options.namespace)
    return TokenAuth(options.hosts, sessions, sign_out=options.sign_out)
