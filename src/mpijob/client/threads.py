"""Run blocking calls and streams in threads, for event loops.

Calls that wait for a job have threads of their own, and so have transfers of files: short reads are never behind
them. A stream has a thread that reads it at most some items ahead of its reader.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from typing import Any, Generic, TypeVar

from mpijob.backends import cancellable_sleep
from mpijob.backends.streams import close

T = TypeVar("T")
_AHEAD = 256


class Pool(Enum):
    """Which threads run a call, and how many there are."""

    SHORT = None  # asyncio's own
    WAITING = 64
    TRANSFER = 32  # a slow object store, or a slow reader of a file, delays no other call


async def run_in_thread(work: Callable[[], T], pool: Pool = Pool.SHORT, *, cancellable: bool = False) -> T:
    """Run a blocking call in a thread, with the caller's context variables.

    A cancelled caller leaves it running to its end, unless it is `cancellable`: then it ends at its next pause.
    """
    stopped = threading.Event() if cancellable else None
    call = functools.partial(contextvars.copy_context().run, _obeying, work, stopped)
    try:
        return await asyncio.get_running_loop().run_in_executor(_threads(pool), call)
    except asyncio.CancelledError:
        if stopped is not None:
            stopped.set()
        raise


def _obeying(work: Callable[[], T], stopped: threading.Event | None) -> T:
    if stopped is None:
        return work()
    cancellable_sleep.set_stop_event(stopped)
    try:
        return work()
    except cancellable_sleep.StreamCancelled as error:
        raise RuntimeError("the caller no longer waits for this call") from error
    finally:
        cancellable_sleep.set_stop_event(None)  # the thread serves others after this


@functools.cache
def _threads(pool: Pool) -> ThreadPoolExecutor | None:
    name = f"mpijob-{pool.name.lower()}"
    return None if pool.value is None else ThreadPoolExecutor(pool.value, thread_name_prefix=name)


async def stream_in_thread(open_stream: Callable[[], Iterator[T]]) -> AsyncGenerator[T]:
    """Yield what a blocking stream yields; closing this one ends its thread."""
    reader = _StreamReader(open_stream, asyncio.get_running_loop())
    try:
        async for item in reader.items():
            yield item
    finally:
        reader.stop()


class _StreamReader(Generic[T]):
    """The thread that opens and reads one stream."""

    def __init__(self, open_stream: Callable[[], Iterator[T]], loop: asyncio.AbstractEventLoop) -> None:
        self._open, self._loop = open_stream, loop
        self._queue: asyncio.Queue[tuple[bool, Any]] = asyncio.Queue()
        self._free = threading.Semaphore(_AHEAD)
        self._stopped = threading.Event()
        work = functools.partial(contextvars.copy_context().run, self._work)
        threading.Thread(target=work, name="mpijob-stream", daemon=True).start()

    async def items(self) -> AsyncIterator[T]:
        """Yield what the stream yields, raise what it raises."""
        while True:
            ended, item = await self._queue.get()
            self._free.release()
            if not ended:
                yield item
            elif item is None:
                return
            else:
                raise item

    def stop(self) -> None:
        """Let the thread end with the next item, or the next pause."""
        self._stopped.set()
        self._free.release()

    def _work(self) -> None:
        outcome: BaseException | None = None
        cancellable_sleep.set_stop_event(self._stopped)
        try:
            self._read()
        except cancellable_sleep.StreamCancelled:
            return
        except Exception as error:  # raised where the stream is read
            outcome = error
        self._put(True, outcome)

    def _read(self) -> None:
        stream = self._open()
        try:
            for item in stream:
                self._free.acquire()
                if self._stopped.is_set():
                    return
                self._put(False, item)
        finally:
            close(stream)

    def _put(self, ended: bool, item: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._queue.put_nowait, (ended, item))
