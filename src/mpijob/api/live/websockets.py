"""The streams as WebSockets, at the same addresses and with the same checks.

Each message is `{"event": …, "id": …, "data": …}` with the data of the server-sent events and of the log
batches.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing

import msgspec
from starlette.websockets import WebSocket

from mpijob.api import errors, request_context
from mpijob.api.auth import rate_limit
from mpijob.api.auth.sessions import CSRF_WORD
from mpijob.api.live import sse
from mpijob.api.live.sse import Flow
from mpijob.api.request_context import AppState, RequestContext, Route

# "Going away" of RFC 6455, section 7.4.1.
_GOING = 1001
_log = logging.getLogger(__name__)


async def changes(context: RequestContext) -> AsyncIterator[Flow]:
    return sse.change_flow(context)


async def logs(context: RequestContext) -> AsyncIterator[Flow]:
    log = await sse.opened(context)
    return sse.Ending(sse.log_flow(context, log), log.feed.close)


async def serve(route: Route, app_state: AppState, socket: WebSocket) -> None:
    """Accept or refuse an upgrade, then send the stream until either side leaves."""
    try:
        flow = await _admitted(route, app_state, socket)
    # The outermost handler: after any error the client gets a response with a message.
    except Exception as error:
        await socket.send_denial_response(errors.response(error))
        return
    await socket.accept()
    # The second task ends when the client disconnects, which sending alone would notice only with the next
    # item.
    both = [asyncio.create_task(work) for work in (_send(flow, socket), _left(socket))]
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in both:
            task.cancel()
        done, _ = await asyncio.wait(both)
        for task in done:
            if not task.cancelled() and (ended := task.exception()) is not None:
                _log.debug("a WebSocket connection ended early", exc_info=ended)


async def _admitted(route: Route, app_state: AppState, socket: WebSocket) -> AsyncIterator[Flow]:
    visitor = await app_state.visitor(socket)
    # Browsers let a page set no headers in an upgrade: the Origin is checked, and the query has the CSRF
    # token.
    app_state.gate.check_upgrade(socket, visitor, socket.query_params.get(CSRF_WORD, ""))
    context = await request_context.admitted(route, app_state, socket, visitor)
    context.check_stream()
    assert route.flow is not None
    return await route.flow(context)


async def _send(flow: AsyncIterator[Flow], socket: WebSocket) -> None:
    async with aclosing(flow) as news:  # type: ignore[type-var]  # a generator
        async for event, at, data in news:
            message = msgspec.json.encode({"event": event, "id": at, "data": data})
            async with asyncio.timeout(rate_limit.SEND_SECONDS):
                await socket.send_text(message.decode())
    await socket.close(_GOING)


async def _left(socket: WebSocket) -> None:
    """Wait for the client to disconnect; its messages are ignored."""
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass
