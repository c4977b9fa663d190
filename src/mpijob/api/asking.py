"""One request as a verb sees it: parsed, checked, with the client at hand. And the table's entry for a verb."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from mpijob.api import limits, problems, rows
from mpijob.api.answers import JobRow
from mpijob.api.board import Board
from mpijob.api.gate import SAFE, Gate, Visitor
from mpijob.api.limits import Limits
from mpijob.api.metrics import MetricsPage
from mpijob.api.opinions import OpinionBox
from mpijob.client import AsyncClient
from mpijob.client.entries import ORIGIN, Origin
from mpijob.errors import InvalidJob
from mpijob.model import JobRef

T = TypeVar("T")
JSON = "application/json"
_KEPT_PAGES = 64


class Pages:
    """The last pages that were made: whoever asks the same at the same revision gets the same bytes."""

    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}

    def get(self, tag: str) -> bytes | None:
        """Return a page that was made already."""
        return self._kept.get(tag)

    def put(self, tag: str, made: bytes) -> bytes:
        """Keep a page, and the newest few only."""
        while len(self._kept) >= _KEPT_PAGES:
            del self._kept[next(iter(self._kept))]
        self._kept[tag] = made
        return made


class Room:
    """What all requests share."""

    def __init__(self, client: AsyncClient, gate: Gate, metrics: MetricsPage | None = None) -> None:
        self.client, self.gate, self.metrics = client, gate, metrics
        self.board, self.limits, self.pages = Board(client), Limits(), Pages()
        self.opinions = OpinionBox(client.settings.home)


class Ask:
    """One request."""

    def __init__(self, room: Room, request: Request, visitor: Visitor | None, query: Any, body: Any) -> None:
        self.room, self.request, self.visitor = room, request, visitor
        self.query, self.body = query, body

    @property
    def client(self) -> AsyncClient:
        """The client that acts for the visitor."""
        return self.room.client

    @property
    def ref(self) -> JobRef:
        """The job that the address names; by its name alone it is looked for in `namespace`."""
        path = self.request.path_params
        namespace = path.get("namespace") or self.query.namespace or self.client.namespace
        return JobRef(namespace, path["name"], self.query.uid)

    @property
    def rows(self) -> tuple[JobRow, ...]:
        """The rows of the list that the visitor may see."""
        return self.room.board.rows

    async def same_name(self) -> tuple[JobRow, ...]:
        """Return every job that has, or had, the name of the address, the newest first."""
        namespace, name = self.ref.namespace, self.ref.name
        found = [*(await self.client.list(namespace=namespace, text=name, limit=500)).items]
        found += (await self.client.deleted(namespace=namespace, text=name, limit=100)).items
        same = {state.ref.uid: state for state in found if state.ref.name == self.ref.name}
        return tuple(rows.row(one) for one in sorted(same.values(), key=lambda one: -one.created))


Handler = Callable[[Ask], Awaitable[Any]]


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One verb of the API: where it is, what it takes and answers, and who may ask."""

    method: str
    path: str
    handler: Handler
    summary: str
    query: Any = None
    body: Any = None
    answer: Any = None
    media: str = JSON
    status: int = 200
    open: bool = False
    bodiless: bool = False  # the body may be left out

    @property
    def changes(self) -> bool:
        """Whether the verb may change something."""
        return self.method not in SAFE


async def answer(route: Route, room: Room, request: Request) -> Response:
    """Let a request in or refuse it, parse it, ask the verb, encode what it says."""
    visitor = None
    if not route.open:
        visitor = room.gate.visitor(request)
        room.limits.count(visitor.user)
        if route.changes:
            room.gate.check_csrf(request, visitor)
    elif route.changes:
        room.gate.check_origin(request)
    query = _query(request, route.query) if route.query else None
    body = await _body(request, route) if route.body else None
    ORIGIN.set(_origin(request))  # each request has a context of its own
    found = await route.handler(Ask(room, request, visitor, query, body))
    if isinstance(found, Response):
        return found
    return Response(msgspec.json.encode(found), route.status, media_type=JSON)


def _origin(request: Request) -> Origin:
    """Return from where somebody asks, for the audit."""
    address = request.client.host if request.client else ""
    return Origin((address,) if address else (), f"page; {request.headers.get('user-agent', '')[:150]}")


def _query(request: Request, kind: type[T]) -> T:
    given = _gathered(request.query_params.multi_items(), kind)
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise problems.misread("the query", error) from error


def _gathered(items: list[tuple[str, str]], kind: Any) -> Mapping[str, Any]:
    """Return the words of a query by name; those that may come several times as lists."""
    several = {
        name for name, hint in get_type_hints(kind).items() if get_origin(hint) is tuple and get_args(hint)
    }
    found: dict[str, Any] = {}
    for name, value in items:
        if name in several:
            found.setdefault(name, []).append(value)
        elif name in found:
            raise InvalidJob(f"the query: {name} was given twice")
        else:
            found[name] = value
    return found


async def _body(request: Request, route: Route) -> Any:
    if route.bodiless and request.headers.get("content-length", "0") == "0":
        return route.body()
    if request.headers.get("content-type", "").partition(";")[0].strip() != JSON:
        raise problems.Refused(415, "the body must be application/json", code="USAGE")
    taken = bytearray()
    async for chunk in request.stream():
        taken += chunk
        if len(taken) > limits.BODY_BYTES:
            size = f"{limits.BODY_BYTES >> 20} MiB"
            raise problems.Refused(
                413, f"the body is larger than {size}", "leave large files to volumes", "USAGE"
            )
    try:
        return msgspec.json.decode(bytes(taken), type=route.body)
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise problems.misread("the body", error) from error  # type: ignore[arg-type]  # told the same way
    except RecursionError as error:
        raise InvalidJob("the body is nested too deeply") from error
