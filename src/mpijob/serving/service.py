"""The application of a small service: a few paths, health probes, Prometheus metrics.

A handler takes a `Request` and returns a `Reply`; the web framework is used in this module only.
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

from mpijob.serving import server
from mpijob.serving.connections import CLIENT_NAME

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

BODY_SECONDS = 10.0
_CODES = {404: "NOT_FOUND", 408: "TOO_SLOW", 413: "TOO_LARGE"}
TEXT, JSON = "text/plain; charset=utf-8", "application/json"


class Reply(NamedTuple):
    """What a handler returns."""

    status: int
    body: bytes | str
    content_type: str = TEXT
    headers: Mapping[str, str] = {}


class Request:
    """What a handler gets; its body is read on demand, within limits."""

    def __init__(self, request: WebRequest) -> None:
        self._request = request

    @property
    def path(self) -> str:
        return self._request.url.path

    @property
    def peer(self) -> str:
        """The client's address; "" if it is not known."""
        return self._request.client.host if self._request.client else ""

    @property
    def client_name(self) -> str | None:
        """The common name of the client's certificate; None without a verified certificate."""
        return getattr(self._request.state, CLIENT_NAME, None)

    @property
    def token(self) -> str:
        """The bearer token, or ""."""
        scheme, _, token = self._request.headers.get("authorization", "").partition(" ")
        return token.strip() if scheme.lower() == "bearer" else ""

    async def body(self, max_bytes: int, seconds: float = BODY_SECONDS) -> bytes:
        """Return the body; respond 413 if it is too large, 408 if it does not arrive in time."""
        declared = self._request.headers.get("content-length", "")
        if declared.isdecimal() and int(declared) > max_bytes:
            raise HTTPException(413)
        # Counted as well: a chunked body declares no length.
        blocks, size = [], 0
        try:
            async with asyncio.timeout(seconds):
                async for block in self._request.stream():
                    size += len(block)
                    if size > max_bytes:
                        raise HTTPException(413)
                    blocks.append(block)
        except TimeoutError as error:
            raise HTTPException(408) from error
        except ClientDisconnect as error:
            raise HTTPException(400) from error
        return b"".join(blocks)


Handler = Callable[[Request], Awaitable[Reply]]
Application = Starlette


def application(
    *,
    post_handlers: Mapping[str, Handler] | None = None,
    get_handlers: Mapping[str, Handler] | None = None,
    alive: Callable[[], bool],
    ready: Callable[[], bool],
) -> Application:
    """Return an application with these paths, /healthz and /readyz."""
    probes = {"/healthz": _probe(alive), "/readyz": _probe(ready)}
    routes = [_route(path, handler, "POST") for path, handler in (post_handlers or {}).items()]
    routes += [_route(path, handler, "GET") for path, handler in {**probes, **(get_handlers or {})}.items()]
    return Starlette(routes=routes, exception_handlers={HTTPException: _error_response})


async def _error_response(_: WebRequest, error: Exception) -> Response:
    """Respond to an error that no handler answered, so that a program can parse it."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    body = {"code": _CODES.get(status, "USAGE"), "message": HTTPStatus(status).phrase}
    # The rest of a refused body is not read, so the connection cannot be reused.
    return Response(json.dumps(body), status, {"content-type": JSON, "connection": "close"})


def _route(path: str, handler: Handler, method: str) -> Route:
    async def respond(request: WebRequest) -> Response:
        reply = await handler(Request(request))
        return Response(reply.body, reply.status, {"content-type": reply.content_type, **reply.headers})

    return Route(path, respond, methods=[method])


def _probe(is_healthy: Callable[[], bool]) -> Handler:
    async def respond(_: Request) -> Reply:
        return Reply(200, "ok\n") if is_healthy() else Reply(503, "not ok\n")

    return respond


# -- metrics ---------------------------------------------------------------------------------------
class Metric(NamedTuple):
    """One metric of a service: its help text, and whether it is a counter."""

    help: str
    value: Callable[[], float]
    counter: bool = False


def metrics_handler(registry: CollectorRegistry, allowed: Callable[[str], bool] | None = None) -> Handler:
    """Return the handler of /metrics; `allowed` returns, in a thread, whether a token may read it."""
    from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

    async def respond(request: Request) -> Reply:
        if allowed is not None and not await run_in_threadpool(allowed, request.token):
            headers = {"www-authenticate": "Bearer"}
            return Reply(401, "a token that may read /metrics is required\n", TEXT, headers)
        return Reply(200, await run_in_threadpool(generate_latest, registry), CONTENT_TYPE_LATEST)

    return respond


def build_registry(metrics_by_name: Mapping[str, Metric]) -> CollectorRegistry:
    """Return a registry with these metrics, their help texts and types."""
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    class Collector:
        def collect(self) -> Iterator[Any]:
            for name, metric in metrics_by_name.items():
                family = CounterMetricFamily if metric.counter else GaugeMetricFamily
                # prometheus_client appends `_total` to counters itself.
                yield family(name.removesuffix("_total"), metric.help, value=metric.value())

    # `auto_describe` would call every metric at registration.
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector())
    return registry


class HealthServer(server.Server):
    """Serves /healthz, /readyz and /metrics on a port; `alive` and `ready` are called for each request."""

    def __init__(
        self,
        port: int,
        *,
        alive: Callable[[], bool],
        ready: Callable[[], bool],
        metrics: Mapping[str, Metric],
    ) -> None:
        handlers = {"/metrics": metrics_handler(build_registry(metrics))}
        app = application(get_handlers=handlers, alive=alive, ready=ready)
        sock = server.listen("", port, name="the health server of this service")
        super().__init__(app, sock, max_connections=64, max_per_address=16)
