"""A page's server in a process of its own, with so many jobs and guests: `python -m bench.pageserver JOBS`.

Jobs are rows put onto the board, people a table of rights (`N-token` is user N of team N % 20), so that only the
server is measured. It prints its address.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Sequence
from typing import Any

import uvicorn

from bench.board import TEAMS, filled
from mpijob import AsyncClient
from mpijob.api.app import application
from mpijob.api.auth.cluster_token import TokenAuth
from mpijob.api.request_context import AppState
from mpijob.api.server import config
from mpijob.backends.memory import MemoryBackend
from mpijob.client.multiuser.sessions import SessionStore
from mpijob.model import Identity
from mpijob.model.platform.permission import Question
from mpijob.settings import Settings


class Seat:
    """The engine as one person sees it, who may see one team; every hundredth sees all."""

    def __init__(self, engine: MemoryBackend, token: str) -> None:
        self._engine, self._number = engine, int(token.partition("-")[0])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def whoami(self) -> Identity:
        """Return who it is."""
        return Identity(f"user-{self._number}")

    def may(self, questions: Sequence[Question]) -> tuple[bool, ...]:
        """Return what they may do."""
        own = f"team-{self._number % TEAMS}"
        return tuple(self._number % 100 == 0 or one.namespace == own for one in questions)


async def main(count: int) -> None:
    """Serve until ended."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as `mpijob ui` has it
    address = f"127.0.0.1:{listening.getsockname()[1]}"
    engine, settings = MemoryBackend(), Settings(home="/nowhere")
    guests = SessionStore(settings, lambda token: Seat(engine, token))
    room = AppState(AsyncClient(engine, settings=settings), TokenAuth([address], guests))
    await filled(room, count)
    made = config(application(room))
    made.lifespan = "off"  # nothing but the rows is on the board
    print(f"http://{address}", flush=True)
    await uvicorn.Server(made).serve(sockets=[listening])


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
