"""The page for several people in a process of its own, over the memory engine: `python -m tests.unit.town_server`.

It prints its address. Everybody named on the command line has the token `NAME-token` and may do everything.
"""

from __future__ import annotations

import asyncio
import socket
import sys

import uvicorn
from tests.unit.api_town import NAMESPACES, Seat, Town

from mpijob.api.app import application
from mpijob.api.auth.cluster_token import TokenAuth
from mpijob.api.request_context import AppState
from mpijob.api.server import config
from mpijob.client import AsyncClient
from mpijob.client.multiuser.sessions import SessionStore
from mpijob.model.platform.form_options import Option
from mpijob.settings import Settings


def main() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    host = f"127.0.0.1:{listening.getsockname()[1]}"
    town = Town()
    town.people = {f"{name}-token": (name, frozenset({"*"})) for name in sys.argv[1:]}
    settings = Settings(home="/nowhere", namespace=NAMESPACES[0])
    guests = SessionStore(settings, lambda token: Seat(town, token))
    room = AppState(AsyncClient(town.engine, settings=settings), TokenAuth([host], guests))
    room.projects._known = (float("inf"), tuple(map(Option, NAMESPACES)))
    print(f"http://{host}", flush=True)
    asyncio.run(uvicorn.Server(config(application(room))).serve(sockets=[listening]))


if __name__ == "__main__":
    main()
