"""One request as a verb sees it: parsed, checked, with the client at hand. And the table's entry for a verb."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from mpijob import codec
from mpijob.api import errors
from mpijob.api.auth import rate_limit
from mpijob.api.auth.client_address import Proxies
from mpijob.api.auth.rate_limit import Limits
from mpijob.api.auth.sessions import CSRF_WORD, SAFE, Authenticator, Principal
from mpijob.api.handlers.feedback import OpinionBox
from mpijob.api.handlers.metrics import MetricsPage
from mpijob.api.live import rows
from mpijob.api.live.job_index import JobIndex, Scope
from mpijob.api.live.progress import ProgressCache
from mpijob.api.parsing.pool import Parsers
from mpijob.api.schemas.job_schemas import JobRow
from mpijob.client import AsyncClient
from mpijob.client.audit.entries import ORIGIN, Origin
from mpijob.client.multiuser.projects import Projects
from mpijob.client.multiuser.sessions import UserSession
from mpijob.client.threads import run_in_thread
from mpijob.errors import InvalidJob
from mpijob.model import JobRef

T = TypeVar("T")
JSON = "application/json"
_KEPT_PAGES = 64
_LATEST = 253_402_300_800.0  # the end of the year 9999
_SPEAKING = (
    "/logs",
    "/curves",
    "/scalars",
    "/why",
    "/artifacts",
    "/artifact",
)  # what comes from what a job said


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


class AppState:
    """What all requests share."""

    def __init__(self, client: AsyncClient, gate: Authenticator, metrics: MetricsPage | None = None) -> None:
        self.client, self.gate, self.metrics = client, gate, metrics
        self.board, self.limits, self.pages = JobIndex(client), Limits(), Pages()
        self.parsers = Parsers()
        self.proxies = Proxies(client.settings.trusted_proxies)
        self.opinions = OpinionBox(client.settings.home)
        self.projects = Projects(client)
        self.progress = ProgressCache()

    async def visitor(self, request: HTTPConnection) -> Principal:
        """Return who asks, counted; a guest who is new gets a namespace to begin in."""
        visitor = await self.gate.visitor(request)
        self.limits.count(visitor.user)
        if visitor.guest is not None and not visitor.guest.at_home:
            await self.projects.house(visitor.guest, self.board.scopes)
        return visitor


class RequestContext:
    """One request."""

    def __init__(
        self, room: AppState, request: HTTPConnection, visitor: Principal | None, query: Any
    ) -> None:
        self.room, self.request, self.visitor = room, request, visitor
        self.query = query
        self.body: Any = None
        self._ref: JobRef | None = None
        self.document = b""  # a body that is not read here

    @property
    def client(self) -> AsyncClient:
        """The client that acts for the visitor, and as the visitor where the server is not their own."""
        return self.room.client if self.guest is None else self.guest.client

    @property
    def guest(self) -> UserSession | None:
        """The visitor at a cluster; None where the server is the visitor's own."""
        return None if self.visitor is None else self.visitor.guest

    @property
    def ref(self) -> JobRef:
        """The job that the address names; by its name alone it is looked for in `namespace`."""
        if self._ref is not None:
            return self._ref
        path = self.request.path_params
        namespace = path.get("namespace") or self.query.namespace or self.client.namespace
        return JobRef(namespace, path["name"], self.query.uid)

    async def resolve(self) -> None:
        """Find the job where the address means an earlier one of its name: `NAME@RUN`, or `run` in the query."""
        ref, run = self.ref, self.query.run
        target = ref.name if run is None else f"{ref.name}@{run}"
        if "@" in target and not ref.uid:
            self._ref = await self.named(target, ref.namespace)

    async def named(self, target: str, namespace: str) -> JobRef:
        """Return the job that a name, `NAME@RUN` or a uid means."""
        return await run_in_thread(lambda: self.client.blocking.ref(target, namespace))

    async def scopes(self) -> frozenset[Scope]:
        """Return the parts of the board that the visitor may see, as the cluster says."""
        every = self.room.board.scopes
        return every if self.guest is None else await self.guest.sees(every)

    async def rows(self) -> tuple[JobRow, ...]:
        """Return the rows of the list that the visitor may see."""
        return self.room.board.rows_in(await self.scopes())

    async def everywhere(self) -> bool:
        """Return whether the visitor sees the jobs of all namespaces."""
        return self.room.board.everywhere if self.guest is None else await self.guest.everywhere()

    async def administrates(self) -> bool:
        """Return whether the visitor runs the place."""
        if self.guest is not None:
            return await self.guest.administrates()
        return (await self.client.whoami()).administrator

    async def check(self, namespace: str, *, logs: bool = False) -> None:
        """Refuse a visitor who may not see the jobs of a namespace, there and in the record of what is gone."""
        if self.guest is not None:
            await self.guest.check(namespace, logs=logs)

    async def parsed(self, what: str, kind: type[T]) -> T:
        """Return what a document holds, read in another process (`parsing`)."""
        assert self.visitor is not None
        most = self.client.settings.max_workers
        return await self.room.parsers.decoded(self.visitor.user, what, self.document, most, kind)

    async def parsed_answer(self, what: str) -> Response:
        """Return what comes of a document as the answer, just as the other process has written it."""
        assert self.visitor is not None
        most = self.client.settings.max_workers
        made = await self.room.parsers.encoded(self.visitor.user, what, self.document, most)
        return Response(made, media_type=JSON)

    @property
    def last_seen(self) -> str:
        """The last change that whoever comes back to a stream has seen."""
        return self.request.headers.get("last-event-id") or str(self.query.rev)

    def check_stream(self) -> None:
        """Refuse one stream too many."""
        assert self.visitor is not None
        self.room.limits.check_stream(self.visitor.user)

    def stream(self) -> AbstractContextManager[None]:
        """Hold one of the visitor's streams."""
        assert self.visitor is not None
        return self.room.limits.stream(self.visitor.user)

    def act(self) -> AbstractAsyncContextManager[None]:
        """Hold one of the visitor's turns to act: what waits for a job to end holds a thread that long."""
        assert self.visitor is not None
        return self.room.limits.act(self.visitor.user)

    async def still_here(self) -> None:
        """Refuse to go on with somebody whose session or login has ended meanwhile."""
        await self.room.gate.visitor(self.request)

    async def same_name(self) -> tuple[JobRow, ...]:
        """Return every job that has, or had, the name of the address, the newest first."""
        namespace, name = self.ref.namespace, self.ref.name
        found = [*(await self.client.list(namespace=namespace, text=name, limit=500)).items]
        found += (await self.client.deleted(namespace=namespace, text=name, limit=100)).items
        same = {state.ref.uid: state for state in found if state.ref.name == self.ref.name}
        return tuple(rows.row(one) for one in sorted(same.values(), key=lambda one: -one.created))


Handler = Callable[[RequestContext], Awaitable[Any]]
Flowing = Callable[[RequestContext], Awaitable[AsyncIterator[Any]]]


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
    flow: Flowing | None = None  # the same as a WebSocket
    bodiless: bool = False  # the body may be left out
    document: bool = False  # the body is a user's document: the verb has it read in another process
    most_bytes: int = rate_limit.BODY_BYTES

    @property
    def changes(self) -> bool:
        """Whether the verb may change something."""
        return self.method not in SAFE


async def answer(route: Route, room: AppState, request: Request) -> Response:
    """Let a request in or refuse it, parse it, ask the verb, encode what it says."""
    visitor = None
    if not route.open:
        visitor = await room.visitor(request)
        if route.changes:
            room.gate.check_csrf(request, visitor)
    elif route.changes:
        room.gate.check_origin(request)
    ask = await admitted(route, room, request, visitor)
    if route.document and visitor is not None:
        with room.parsers.upload(visitor.user):
            ask.document = await _taken(request, route)
    elif route.body:
        ask.body = await _body(request, route)
    found = await route.handler(ask)
    if isinstance(found, Response):
        return found
    return Response(msgspec.json.encode(found), route.status, media_type=JSON)


async def admitted(
    route: Route, room: AppState, request: HTTPConnection, visitor: Principal | None
) -> RequestContext:
    """Return what is asked, once the visitor may see the namespace that it is about."""
    query = _query(request, route.query) if route.query else None
    ORIGIN.set(_origin(request, room.proxies))  # each request has a context of its own
    ask = RequestContext(room, request, visitor, query)
    if "{name}" in route.path:
        await ask.check(ask.ref.namespace, logs=route.path.endswith(_SPEAKING))
        await ask.resolve()
    return ask


def _origin(request: HTTPConnection, proxies: Proxies) -> Origin:
    """Return from where somebody asks, for the audit; only a proxy that is trusted may say for whom it asks."""
    nearest = request.client.host if request.client else ""
    addresses = proxies.forwarded_for(nearest, request.headers.get("x-forwarded-for", ""))
    return Origin(addresses, f"page; {request.headers.get('user-agent', '')[:150]}")


def _query(request: HTTPConnection, kind: type[T]) -> T:
    words = request.query_params.multi_items()
    if request.scope["type"] == "websocket":
        words = [one for one in words if one[0] != CSRF_WORD]
    given = _gathered(words, kind)
    try:
        found = codec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise errors.misread("the query", error) from error
    _refuse_endless(given, found)
    return found


def _refuse_endless(given: Mapping[str, Any], found: Any) -> None:
    """Refuse numbers that no calendar has: `inf`, `nan` and those behind the year 9999."""
    for name, text in given.items():
        value = getattr(found, name)
        if isinstance(value, float) and not abs(value) < _LATEST:
            raise InvalidJob(
                f"the query: {name}={str(text)[:40]} is not a time",
                hint="write seconds since 1970, such as 1767225600",
            )


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
    taken = await _taken(request, route)
    try:
        return codec.decode(taken, route.body)
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise errors.misread("the body", error) from error  # type: ignore[arg-type]  # told the same way
    except RecursionError as error:
        raise InvalidJob("the body is nested too deeply") from error


async def _taken(request: Request, route: Route) -> bytes:
    """Return the body; one of another kind, too large or too slow is refused."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != JSON:
        raise errors.Refused(415, "the body must be application/json", code="USAGE")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > route.most_bytes:
        raise _too_large(route)
    taken = bytearray()
    try:
        async with asyncio.timeout(rate_limit.BODY_SECONDS):
            async for chunk in request.stream():
                taken += chunk
                if len(taken) > route.most_bytes:
                    raise _too_large(route)
    except TimeoutError as error:
        raise errors.Refused(
            408,
            f"the request body did not arrive within {rate_limit.BODY_SECONDS:g} s",
            "send it again",
            "USAGE",
        ) from error
    return bytes(taken)


def _too_large(route: Route) -> errors.Refused:
    size = f"{route.most_bytes >> 10} KiB"
    return errors.Refused(413, f"the body is larger than {size}", "leave large files to volumes", "TOO_LARGE")
