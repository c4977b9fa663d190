"""A server for several people, each with a token of their own, over one memory engine.

Who may do what is a table here; its twin is the real one, `tests/e2e/cluster/test_page_login.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from starlette.testclient import TestClient

from mpijob.api.app import application
from mpijob.api.auth.cluster_token import FORWARDED, TokenAuth
from mpijob.api.auth.sessions import CSRF_HEADER
from mpijob.api.openapi import PREFIX
from mpijob.api.request_context import AppState
from mpijob.backends.capabilities import C, CapableBackend, SupportsAccessReview, SupportsProjects
from mpijob.backends.memory import MemoryBackend
from mpijob.client import AsyncClient
from mpijob.client.multiuser.sessions import SessionStore
from mpijob.errors import MpiJobError, NotAllowed
from mpijob.model import Identity
from mpijob.model.platform.form_options import Option
from mpijob.model.platform.permission import Question
from mpijob.settings import Settings

HOST = "mpijob.apps.example.com"
NAMESPACES = ("team-a", "team-b")


class Seat(CapableBackend, SupportsAccessReview, SupportsProjects):
    """The engine as one person sees it."""

    def __init__(self, town: Town, token: str) -> None:
        self._town, self._token = town, token

    def __getattr__(self, name: str) -> Any:
        return getattr(self._town.engine, name)

    def capability(self, kind: type[C]) -> C | None:
        own = super().capability(kind)
        return self._town.engine.capability(kind) if own is None else own

    def whoami(self) -> Identity:
        self._town.asked += 1
        if self._town.outage is not None:
            raise self._town.outage
        if self._token not in self._town.people:
            raise NotAllowed("the login has expired")
        return Identity(self._town.people[self._token][0])

    def check_access(self, questions: Sequence[Question]) -> tuple[bool, ...]:
        self._town.asked += len(questions)
        if self._town.outage is not None:
            raise self._town.outage
        _, own = self._town.people.get(self._token, ("", frozenset()))
        return tuple("*" in own or one.namespace in own for one in questions)

    def projects(self) -> tuple[Option, ...]:
        raise NotAllowed("only the server lists namespaces here")


class Town:
    """The people, what they may do, and a clock."""

    def __init__(self) -> None:
        self.engine = MemoryBackend()
        self.people: dict[str, tuple[str, frozenset[str]]] = {
            "alice-token": ("alice", frozenset({"team-a"})),
            "bob-token": ("bob", frozenset({"team-b"})),
            "root-token": ("root", frozenset({"*"})),
        }
        self.now = 1000.0
        self.asked = 0
        self.outage: MpiJobError | None = None

    def room(self) -> AppState:
        settings = Settings(home="/nowhere", namespace="mpijob-system")
        guests = SessionStore(settings, lambda token: Seat(self, token), now=lambda: self.now)
        room = AppState(AsyncClient(self.engine, settings=settings), TokenAuth([HOST], guests))
        room.projects._known = (float("inf"), tuple(map(Option, NAMESPACES)))
        return room


class Person:
    """One of them at the page."""

    def __init__(self, http: TestClient, token: str) -> None:
        self.http, self.token = http, token
        self.headers = {FORWARDED: token}
        answer = http.get(f"{PREFIX}/session", headers=self.headers)
        if answer.status_code == 200:
            self.headers[CSRF_HEADER] = answer.json()["csrf"]

    def get(self, path: str, **headers: str) -> Any:
        return self.http.get(PREFIX + path, headers=self.headers | headers)

    def post(self, path: str, body: Any = None) -> Any:
        return self.http.post(PREFIX + path, json=body, headers=self.headers)

    def names(self) -> list[str]:
        return [one["name"] for one in self.get("/trainjobs").json()["items"]]

    def create(self, name: str, namespace: str) -> Any:
        job = {"name": name, "namespace": namespace, "workers": 2, "command": ["true"],
               "labels": {"memory.mpijob/outcome": "hangs"}}  # fmt: skip
        return self.post("/trainjobs", {"job": job})


@contextmanager
def at(room: AppState) -> Iterator[TestClient]:
    with TestClient(application(room), base_url=f"https://{HOST}", raise_server_exceptions=False) as http:
        yield http
