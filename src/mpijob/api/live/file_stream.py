"""Stream a file of a job while it is fetched, never whole in memory or on the disk of this server.

The engine writes into a named pipe as into a file, and the response reads from it. An error before the first
bytes is a response with its status; a later one closes the connection, so that no client takes a partial file
for a complete one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from urllib.parse import quote

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from mpijob.errors import MpiJobError

_PIECE = 64 << 10
_log = logging.getLogger(__name__)


async def streamed(
    fetch: Callable[[Path], Awaitable[None]], name: str, turn: AbstractAsyncContextManager[None]
) -> StreamingResponse:
    """Return a response with what `fetch` writes to the path that it gets; `turn` is held until it ends."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(turn)
        pipe = Path(tempfile.mkdtemp(prefix="mpijob-ui-"), "file")
        os.mkfifo(pipe, 0o600)
        reader = await _reader(pipe, stack)
        fetched = asyncio.ensure_future(fetch(pipe))
        # Removed only after the fetch: without the pipe the engine would create a regular file at this path.
        fetched.add_done_callback(lambda _: _removed(pipe, fetched))
        first = asyncio.ensure_future(reader.read(_PIECE))
        stack.callback(first.cancel)
        await asyncio.wait((first, fetched), return_when=asyncio.FIRST_COMPLETED)
        if fetched.done():
            # It failed, or the whole file is in the pipe already.
            await fetched
        return _FileResponse(_pieces(await first, reader, fetched), name, stack.pop_all())
    # For mypy: the stack suppresses no exceptions.
    raise AssertionError("unreachable")


def _removed(pipe: Path, fetched: asyncio.Future[None]) -> None:
    shutil.rmtree(pipe.parent, ignore_errors=True)
    if not fetched.cancelled():
        # Retrieved, so that asyncio does not log it as never retrieved if the client is gone.
        fetched.exception()


async def _reader(pipe: Path, stack: AsyncExitStack) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=_PIECE)
    # O_NONBLOCK: opening a pipe for reading would wait for its writer.
    file = os.fdopen(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), file
    )
    # The writer then gets EPIPE, or ENXIO if it opens the pipe later.
    stack.callback(transport.close)
    return reader


async def _pieces(
    piece: bytes, reader: asyncio.StreamReader, fetched: asyncio.Future[None]
) -> AsyncIterator[bytes]:
    while piece:
        yield piece
        piece = await reader.read(_PIECE)
    try:
        await fetched
    except MpiJobError as error:
        _log.warning("a download failed: %s", error.message)
        raise


class _FileResponse(StreamingResponse):
    """Releases what the download holds, however the response ends."""

    def __init__(self, pieces: AsyncIterator[bytes], name: str, stack: AsyncExitStack) -> None:
        disposition = f"attachment; filename*=UTF-8''{quote(name, safe='')}"
        super().__init__(
            pieces, media_type="application/octet-stream", headers={"content-disposition": disposition}
        )
        self._stack = stack

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._stack:
            await super().__call__(scope, receive, send)
