"""A page's server over the memory engine, and a browser that is signed in there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from starlette.testclient import TestClient

from mpijob.api.app import application
from mpijob.api.auth.sessions import CSRF_HEADER, CookieAuth
from mpijob.api.openapi import PREFIX
from mpijob.api.request_context import AppState
from mpijob.api.static import Files
from mpijob.backends.memory import MemoryBackend, Outcome, Script
from mpijob.client import AsyncClient
from mpijob.settings import Settings

HOST = "127.0.0.1:8765"
COOKIE = "mpijob-session-8765"
HERE = Settings(home="/nowhere")


class Browser:
    """One browser; signed in unless it is told not to."""

    def __init__(self, room: AppState, http: TestClient) -> None:
        self.room, self.http = room, http

    def sign_in(self) -> Browser:
        answer = self.http.post(f"{PREFIX}/session", json={"token": self.room.gate.invite()})
        assert answer.status_code == 200, answer.text
        self.http.headers[CSRF_HEADER] = answer.json()["csrf"]
        return self

    def get(self, path: str, **more: Any) -> Any:
        return self.http.get(PREFIX + path, **more)

    def post(self, path: str, body: Any = None, **more: Any) -> Any:
        return (
            self.http.post(PREFIX + path, json=body, **more)
            if body is not None
            else self.http.post(PREFIX + path, **more)
        )

    def delete(self, path: str, **more: Any) -> Any:
        return self.http.delete(PREFIX + path, **more)

    def create(self, name: str, command: str = "true", **fields: Any) -> dict[str, Any]:
        body = {"job": {"name": name, "workers": 2, "command": ["sh", "-c", command], **fields}}
        answer = self.post("/trainjobs", body)
        assert answer.status_code == 201, answer.text
        made: dict[str, Any] = answer.json()
        return made


@contextmanager
def served(backend: Any = None, files: Files | None = None, settings: Settings = HERE) -> Iterator[Browser]:
    """Yield a browser that knows the server and is not signed in yet."""
    client = AsyncClient(backend or MemoryBackend(), settings=settings)
    room = AppState(client, CookieAuth("maria", [HOST], cookie=COOKIE))
    with TestClient(
        application(room, files), base_url=f"http://{HOST}", raise_server_exceptions=False
    ) as http:
        yield Browser(room, http)


def signed_in() -> Iterator[Browser]:
    """The fixture `browser` of those who want it; jobs whose names begin with bad- fail there."""
    script = Script(jobs={"bad-*": Outcome(exit_code=3, worker=1, lines=("rank {rank} of {world}",))})
    with served(MemoryBackend(script=script)) as one:
        yield one.sign_in()


def names(answer: Any) -> list[str]:
    return [item["name"] for item in answer.json()["items"]]


def settled(browser: Browser, counts: dict[str, int]) -> None:
    """Wait until the board has seen how the jobs ended."""
    deadline = time.monotonic() + 10
    while browser.get("/trainjobs").json()["counts"] != counts:
        assert time.monotonic() < deadline, browser.get("/trainjobs").json()["counts"]
        time.sleep(0.02)
