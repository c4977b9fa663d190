"""A request as handlers get it: authenticated, parsed, checked, with a client. And the entries of the route table."""

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
# The end of the year 9999, the last that `datetime` can represent.
_LATEST = 253_402_300_800.0
# Paths that return output of a job, for which log permission is required.
_SPEAKING = (
    "/logs",
    "/curves",
    "/scalars",
    "/why",
    "/artifacts",
    "/artifact",
)


class Pages:
    """A cache of encoded list pages: equal requests at the same revision get the same bytes."""

    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}

    def get(self, tag: str) -> bytes | None:
        return self._kept.get(tag)

    def put(self, tag: str, made: bytes) -> bytes:
        """Store a page; the oldest are dropped."""
        while len(self._kept) >= _KEPT_PAGES:
            del self._kept[next(iter(self._kept))]
        self._kept[tag] = made
        return made


class AppState:
    """State that all requests share."""

    def __init__(self, client: AsyncClient, gate: Authenticator, metrics: MetricsPage | None = None) -> None:
        self.client, self.gate, self.metrics = client, gate, metrics
        self.job_index, self.limits, self.pages = JobIndex(client), Limits(), Pages()
        self.parsers = Parsers()
        self.proxies = Proxies(client.settings.trusted_proxies)
        self.opinions = OpinionBox(client.settings.home)
        self.projects = Projects(client)
        self.progress = ProgressCache()

    async def visitor(self, request: HTTPConnection) -> Principal:
        """Authenticate and count a request; a new user gets a default namespace."""
        visitor = await self.gate.visitor(request)
        self.limits.count(visitor.user)
        if visitor.guest is not None and not visitor.guest.has_namespace:
            await self.projects.set_default_namespace(visitor.guest, self.job_index.scopes)
        return visitor


class RequestContext:
    """One request; `document` is its raw body where it is parsed in another process."""

    def __init__(
        self, app_state: AppState, request: HTTPConnection, visitor: Principal | None, query: Any
    ) -> None:
        self.room, self.request, self.visitor = app_state, request, visitor
        self.query = query
        self.body: Any = None
        self._ref: JobRef | None = None
        self.document = b""

    @property
    def client(self) -> AsyncClient:
        """The client for this request; on a server of many users it acts with the user's own token."""
        return self.room.client if self.guest is None else self.guest.client

    @property
    def guest(self) -> UserSession | None:
        """The user's session at the cluster; None on a server of one user."""
        return None if self.visitor is None else self.visitor.guest

    @property
    def ref(self) -> JobRef:
        """The job of the path; without a namespace there, in the query's or the default one."""
        if self._ref is not None:
            return self._ref
        path = self.request.path_params
        namespace = path.get("namespace") or self.query.namespace or self.client.namespace
        return JobRef(namespace, path["name"], self.query.uid)

    async def resolve(self) -> None:
        """Resolve a path that addresses an earlier run: `NAME@RUN`, or `run` in the query."""
        ref, run = self.ref, self.query.run
        target = ref.name if run is None else f"{ref.name}@{run}"
        if "@" in target and not ref.uid:
            self._ref = await self.named(target, ref.namespace)

    async def named(self, target: str, namespace: str) -> JobRef:
        """Resolve a name, `NAME@RUN` or a uid."""
        return await run_in_thread(lambda: self.client.blocking.ref(target, namespace))

    async def scopes(self) -> frozenset[Scope]:
        """Return the parts of the job index that the user may see, as reviewed by the cluster."""
        every = self.room.job_index.scopes
        return every if self.guest is None else await self.guest.visible(every)

    async def rows(self) -> tuple[JobRow, ...]:
        return self.room.job_index.rows_in(await self.scopes())

    async def everywhere(self) -> bool:
        return self.room.job_index.everywhere if self.guest is None else await self.guest.everywhere()

    async def administrates(self) -> bool:
        """Return whether the user is an administrator of the platform."""
        if self.guest is not None:
            return await self.guest.administrates()
        return (await self.client.whoami()).administrator

    async def check(self, namespace: str, *, logs: bool = False) -> None:
        """Raise NotAllowed if the user may not list the jobs of a namespace, current and deleted ones."""
        if self.guest is not None:
            await self.guest.check(namespace, logs=logs)

    async def parsed(self, what: str, kind: type[T]) -> T:
        """Parse the document in the parser process."""
        assert self.visitor is not None
        most = self.client.settings.max_workers
        return await self.room.parsers.decoded(self.visitor.user, what, self.document, most, kind)

    async def parsed_answer(self, what: str) -> Response:
        """Parse the document and return the JSON of the parser process as it is."""
        assert self.visitor is not None
        most = self.client.settings.max_workers
        made = await self.room.parsers.encoded(self.visitor.user, what, self.document, most)
        return Response(made, media_type=JSON)

    @property
    def last_seen(self) -> str:
        """The last change that a reconnecting client has received."""
        return self.request.headers.get("last-event-id") or str(self.query.rev)

    def check_stream(self) -> None:
        assert self.visitor is not None
        self.room.limits.check_stream(self.visitor.user)

    def stream(self) -> AbstractContextManager[None]:
        """Count a stream while the context is open."""
        assert self.visitor is not None
        return self.room.limits.stream(self.visitor.user)

    def act(self) -> AbstractAsyncContextManager[None]:
        """Hold one of the user's slots for operations: one that waits for a job blocks a thread as long."""
        assert self.visitor is not None
        return self.room.limits.act(self.visitor.user)

    async def still_here(self) -> None:
        """Raise Refused if the session or login of a long request has ended."""
        await self.room.gate.visitor(self.request)

    async def same_name(self) -> tuple[JobRow, ...]:
        """Return all jobs that have or had this name, newest first."""
        namespace, name = self.ref.namespace, self.ref.name
        found = [*(await self.client.list(namespace=namespace, text=name, limit=500)).items]
        found += (await self.client.deleted(namespace=namespace, text=name, limit=100)).items
        same = {state.ref.uid: state for state in found if state.ref.name == self.ref.name}
        return tuple(rows.row(one) for one in sorted(same.values(), key=lambda one: -one.created))


Handler = Callable[[RequestContext], Awaitable[Any]]
Flowing = Callable[[RequestContext], Awaitable[AsyncIterator[Any]]]


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the route table: address, input, output and permissions."""

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
    # The same stream as a WebSocket.
    flow: Flowing | None = None
    # The body is optional.
    bodiless: bool = False
    # The body is a user's document, which the handler has parsed in the parser process.
    document: bool = False
    most_bytes: int = rate_limit.BODY_BYTES

    @property
    def changes(self) -> bool:
        return self.method not in SAFE


async def answer(route: Route, app_state: AppState, request: Request) -> Response:
    """Authenticate and parse a request, call its handler, and encode the result."""
    visitor = None
    if not route.open:
        visitor = await app_state.visitor(request)
        if route.changes:
            app_state.gate.check_csrf(request, visitor)
    elif route.changes:
        app_state.gate.check_origin(request)
    context = await admitted(route, app_state, request, visitor)
    if route.document and visitor is not None:
        with app_state.parsers.upload(visitor.user):
            context.document = await _taken(request, route)
    elif route.body:
        context.body = await _body(request, route)
    found = await route.handler(context)
    if isinstance(found, Response):
        return found
    return Response(msgspec.json.encode(found), route.status, media_type=JSON)


async def admitted(
    route: Route, app_state: AppState, request: HTTPConnection, visitor: Principal | None
) -> RequestContext:
    """Return the context of a request, after the check that the user may see its namespace."""
    query = _query(request, route.query) if route.query else None
    # A context variable: each request runs in a context of its own, and the audit reads it there.
    ORIGIN.set(_origin(request, app_state.proxies))
    context = RequestContext(app_state, request, visitor, query)
    if "{name}" in route.path:
        await context.check(context.ref.namespace, logs=route.path.endswith(_SPEAKING))
        await context.resolve()
    return context


def _origin(request: HTTPConnection, proxies: Proxies) -> Origin:
    """Return where a request comes from, for the audit log."""
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
    """Refuse `inf`, `nan` and times after the year 9999, which `datetime` cannot represent."""
    for name, text in given.items():
        value = getattr(found, name)
        if isinstance(value, float) and not abs(value) < _LATEST:
            raise InvalidJob(
                f"the query: {name}={str(text)[:40]} is not a time",
                hint="write seconds since 1970, such as 1767225600",
            )


def _gathered(items: list[tuple[str, str]], kind: Any) -> Mapping[str, Any]:
    """Return the query parameters by name; those that may be repeated as lists."""
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
    """Read the body; refuse another content type, and a body that is too large or too slow."""
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
