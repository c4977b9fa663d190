"""One event loop on one daemon thread, so that blocking calls also work inside a notebook's own loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import TypeVar

from mpijob.client.bridge import close

T = TypeVar("T")


class Portal:
    """The bridge to an engine that needs an event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="mpijob", daemon=True)
        self._thread.start()

    def call(self, work: Awaitable[T]) -> T:
        """Return the result of the work; an interrupted caller cancels it."""
        future = asyncio.run_coroutine_threadsafe(_run(work), self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def iterate(self, stream: AsyncIterator[T]) -> Iterator[T]:
        """Yield what the stream yields; close it when the caller stops."""
        try:
            while True:
                try:
                    item = self.call(stream.__anext__())
                except StopAsyncIteration:
                    return
                yield item
        finally:
            self.call(close(stream))

    def close(self) -> None:
        """Stop the loop and its thread."""
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _run(work: Awaitable[T]) -> T:
    return await work
