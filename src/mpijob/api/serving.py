"""Serving until told to stop, on a socket that the command line has opened already.

`mpijob ui` binds the address, prints it with its token and becomes this process: the two faces do not know each
other, and the token is never in an argument or a variable of the environment (see `__main__`).
"""

from __future__ import annotations

import asyncio
import socket
import sys
from contextlib import suppress

import msgspec
import uvicorn

from mpijob.api.app import application
from mpijob.api.asking import Room
from mpijob.api.gate import Gate
from mpijob.api.metrics import metrics_page
from mpijob.client import AsyncClient
from mpijob.settings import Settings


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line hands over: the listening socket, under which names, for whom."""

    socket: int
    hosts: tuple[str, ...]
    token: str
    settings: Settings
    namespace: str | None = None


def serve(options: Options) -> None:
    """Serve until SIGINT or SIGTERM."""
    with suppress(KeyboardInterrupt):  # Ctrl-C is how the page is ended
        sys.exit(asyncio.run(_serve(options)))


async def _serve(options: Options) -> int:
    listening = socket.socket(fileno=options.socket)
    port = listening.getsockname()[1]
    async with AsyncClient(namespace=options.namespace, settings=options.settings) as client:
        user = (await client.port.whoami()).user
        gate = Gate(user, options.hosts, cookie=f"mpijob-session-{port}")  # cookies do not tell ports apart
        gate.invite(options.token)
        config = uvicorn.Config(
            application(Room(client, gate, metrics_page(options.settings, options.namespace))),
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=1,
            h11_max_incomplete_event_size=32 << 10,
            limit_concurrency=500,
            ws="none",
        )
        server = uvicorn.Server(config)
        await server.serve(sockets=[listening])
    return 0 if server.started else 1
