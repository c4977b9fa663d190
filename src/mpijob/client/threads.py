"""Run blocking calls and streams in threads, for event loops.

Calls that wait for a job, and file transfers, have thread pools of their own, so that they never delay short
reads.
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
# Items that a stream's thread reads ahead of its reader.
_AHEAD = 256


class Pool(Enum):
    """Which threads run a call, and how many there are."""

    # The default executor of asyncio.
    SHORT = None
    WAITING = 64
    # Separate from WAITING: a slow object store must not use up its threads.
    TRANSFER = 32


async def run_in_thread(work: Callable[[], T], pool: Pool = Pool.SHORT, *, cancellable: bool = False) -> T:
    """Run a blocking call in a thread, with the caller's context variables.

    If the caller is cancelled, the call keeps running to its end; a `cancellable` one ends at its next pause.
    """
    # A thread cannot be interrupted: `cancellable_sleep` checks this event.
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
        # The pool reuses the thread.
        cancellable_sleep.set_stop_event(None)


@functools.cache
def _threads(pool: Pool) -> ThreadPoolExecutor | None:
    name = f"mpijob-{pool.name.lower()}"
    return None if pool.value is None else ThreadPoolExecutor(pool.value, thread_name_prefix=name)


async def stream_in_thread(open_stream: Callable[[], Iterator[T]]) -> AsyncGenerator[T]:
    """Yield the items of a blocking stream; closing this generator ends its thread."""
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
        # Unbounded, because `put_nowait` is called from the loop; the semaphore bounds it.
        self._queue: asyncio.Queue[tuple[bool, Any]] = asyncio.Queue()
        self._free = threading.Semaphore(_AHEAD)
        self._stopped = threading.Event()
        work = functools.partial(contextvars.copy_context().run, self._work)
        threading.Thread(target=work, name="mpijob-stream", daemon=True).start()

    async def items(self) -> AsyncIterator[T]:
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
        """Make the thread end at its next item, or at its next pause."""
        self._stopped.set()
        self._free.release()

    def _work(self) -> None:
        outcome: BaseException | None = None
        cancellable_sleep.set_stop_event(self._stopped)
        try:
            self._read()
        except cancellable_sleep.StreamCancelled:
            return
        # Raised again where the stream is read.
        except Exception as error:
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
        # A stream can outlive its loop, for example at the end of `asyncio.run`.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._queue.put_nowait, (ended, item))
