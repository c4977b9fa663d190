"""The application of a small service: a few paths, probes for a kubelet, numbers for Prometheus.

A service sees a `Request` and gives an `Reply`; the web framework stays in here.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.requests import Request as WebRequest
from starlette.responses import Response
from starlette.routing import Route

from mpijob.serving.connections import CLIENT_NAME

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

BODY_SECONDS = 10.0
_CODES = {404: "NOT_FOUND", 408: "TOO_SLOW", 413: "TOO_LARGE"}
TEXT, JSON = "text/plain; charset=utf-8", "application/json"


class Reply(NamedTuple):
    """What is answered."""

    status: int
    body: bytes | str
    kind: str = TEXT
    headers: Mapping[str, str] = {}


class Request:
    """What is asked."""

    def __init__(self, request: WebRequest) -> None:
        self._request = request

    @property
    def path(self) -> str:
        """The path that is asked for."""
        return self._request.url.path

    @property
    def peer(self) -> str:
        """The address that asks."""
        return self._request.client.host if self._request.client else ""

    @property
    def client_name(self) -> str | None:
        """The name in the client's certificate; None where it has shown none that was verified."""
        return getattr(self._request.state, CLIENT_NAME, None)

    @property
    def token(self) -> str:
        """The bearer token, "" for none."""
        scheme, _, token = self._request.headers.get("authorization", "").partition(" ")
        return token.strip() if scheme.lower() == "bearer" else ""

    async def body(self, most: int, seconds: float = BODY_SECONDS) -> bytes:
        """Return the body; refuse one that is too large, or does not come."""
        told = self._request.headers.get("content-length", "")
        if told.isdecimal() and int(told) > most:
            raise HTTPException(413)
        pieces, size = [], 0
        try:
            async with asyncio.timeout(seconds):
                async for piece in self._request.stream():
                    size += len(piece)
                    if size > most:
                        raise HTTPException(413)
                    pieces.append(piece)
        except TimeoutError as error:
            raise HTTPException(408) from error
        except ClientDisconnect as error:
            raise HTTPException(400) from error
        return b"".join(pieces)


Handler = Callable[[Request], Awaitable[Reply]]
Application = Starlette


def application(
    *,
    posts: Mapping[str, Handler] | None = None,
    gets: Mapping[str, Handler] | None = None,
    alive: Callable[[], bool],
    ready: Callable[[], bool],
) -> Application:
    """Return an application of these paths, with /healthz and /readyz."""
    probes = {"/healthz": _probe(alive), "/readyz": _probe(ready)}
    routes = [_route(path, one, "POST") for path, one in (posts or {}).items()]
    routes += [_route(path, one, "GET") for path, one in {**probes, **(gets or {})}.items()]
    return Starlette(routes=routes, exception_handlers={HTTPException: _refused})


async def _refused(_: WebRequest, error: Exception) -> Response:
    """Answer what no service of ours has answered, so that a program can read it."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    body = {"code": _CODES.get(status, "USAGE"), "message": HTTPStatus(status).phrase}
    return Response(json.dumps(body), status, {"content-type": JSON, "connection": "close"})


def _route(path: str, handler: Handler, method: str) -> Route:
    async def answered(request: WebRequest) -> Response:
        told = await handler(Request(request))
        return Response(told.body, told.status, {"content-type": told.kind, **told.headers})

    return Route(path, answered, methods=[method])


def _probe(well: Callable[[], bool]) -> Handler:
    async def answer(_: Request) -> Reply:
        return Reply(200, "ok\n") if well() else Reply(503, "not ok\n")

    return answer


# -- numbers ---------------------------------------------------------------------------------------
class Number(NamedTuple):
    """One number that a service tells of itself: what it means, and whether it only grows."""

    text: str
    value: Callable[[], float]
    counter: bool = False


def metrics(registry: CollectorRegistry, allowed: Callable[[str], bool] | None = None) -> Handler:
    """Return what Prometheus is answered; `allowed` says of a token, in a thread, whether it may read it."""
    from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

    async def answer(request: Request) -> Reply:
        if allowed is not None and not await run_in_threadpool(allowed, request.token):
            return Reply(
                401, "a token that may read /metrics is needed\n", TEXT, {"www-authenticate": "Bearer"}
            )
        return Reply(200, await run_in_threadpool(generate_latest, registry), CONTENT_TYPE_LATEST)

    return answer


def registry_of(numbers: Mapping[str, Number]) -> CollectorRegistry:
    """Return numbers as Prometheus reads them: exact, with their meaning and their type."""
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    class Collector:
        def collect(self) -> Iterator[Any]:
            for name, one in numbers.items():
                family = CounterMetricFamily if one.counter else GaugeMetricFamily
                yield family(name.removesuffix("_total"), one.text, value=one.value())

    made = CollectorRegistry(auto_describe=False)
    made.register(Collector())
    return made
