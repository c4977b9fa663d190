"""The ASGI application: Host check, routes, static files, and security headers on every response."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, WebSocketRoute
from starlette.routing import Route as Served
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from mpijob.api import compression, errors, openapi, request_context
from mpijob.api.auth import rate_limit
from mpijob.api.live import websockets
from mpijob.api.request_context import AppState, Route
from mpijob.api.routes import ROUTES
from mpijob.api.static import HEADERS, Files


def application(app_state: AppState, files: Files | None = None) -> ASGIApp:
    @asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        await app_state.job_index.start()
        try:
            yield
        finally:
            await app_state.job_index.stop()

    app = Starlette(
        routes=[
            *(_served(route, app_state) for route in ROUTES),
            *(_flowing(route, app_state) for route in ROUTES if route.flow is not None),
            *_scraped(app_state),
            *_others(files or Files()),
        ],
        exception_handlers={Exception: errors.on_error, HTTPException: _not_served},
        lifespan=life,
    )
    return _Guarded(app, app_state)


def _served(route: Route, app_state: AppState) -> BaseRoute:
    async def endpoint(request: Request) -> Response:
        try:
            return compression.compressed(await request_context.answer(route, app_state, request), request)
        # The outermost handler: after any error the client gets a JSON body, not a closed connection.
        except Exception as error:
            return errors.response(error)

    return Served(openapi.PREFIX + route.path, endpoint, methods=[route.method])


def _flowing(route: Route, app_state: AppState) -> BaseRoute:
    async def endpoint(socket: WebSocket) -> None:
        await websockets.serve(route, app_state, socket)

    return WebSocketRoute(openapi.PREFIX + route.path, endpoint)


def _scraped(app_state: AppState) -> list[BaseRoute]:
    return (
        [] if app_state.metrics is None else [Served("/metrics", app_state.metrics.answer, methods=["GET"])]
    )


def _others(files: Files) -> list[BaseRoute]:
    async def unknown(request: Request) -> Response:
        return errors.response(
            errors.Refused(
                404, f"there is no {request.url.path}", "/api/v1/openapi.json has all", "NOT_FOUND"
            )
        )

    every = ["GET", "POST", "PUT", "PATCH", "DELETE"]
    return [
        Served("/api/{path:path}", unknown, methods=every),
        Served("/{path:path}", files.serve, methods=["GET"]),
    ]


async def _not_served(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    return errors.response(
        errors.Refused(status, f"{request.method} is not supported for {request.url.path}", "", "USAGE")
    )


class _TooSlow(BaseException):
    """A client that reads nothing. Not an Exception, so that no handler tries to send it an error response."""


class _Guarded:
    """Checks the Host header before anything else, and adds the headers to every response."""

    def __init__(self, app: ASGIApp, app_state: AppState) -> None:
        self._app, self._app_state = app, app_state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            app = self._checked(HTTPConnection(scope)) or self._app
            # The connection is dropped.
            with suppress(_TooSlow):
                await app(scope, receive, _with_headers(send))
        # Refused before the upgrade is accepted.
        elif self._checked(HTTPConnection(scope)) is not None:
            await send({"type": "websocket.close", "code": 1008})
        else:
            await self._app(scope, receive, send)

    def _checked(self, request: HTTPConnection) -> ASGIApp | None:
        try:
            self._app_state.gate.check_host(request)
        except errors.Refused as refusal:
            return errors.response(refusal)
        return None


def _with_headers(send: Send) -> Callable[[Message], Awaitable[None]]:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("cache-control", "no-store")
        try:
            # Without it a client that stops reading holds its connection and its response in memory.
            async with asyncio.timeout(rate_limit.SEND_SECONDS):
                await send(message)
        except TimeoutError:
            raise _TooSlow from None

    return sending
