"""Fair concurrency limit: a number of requests at once, fewer per client address, the rest queued.

A client that floods a service blocks only itself: an address has at most a part of the slots, and waiting
addresses are served round-robin, however many requests each has queued.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class QueueFull(Exception):
    """A client address has too many queued requests."""


class ConcurrencyLimit:
    """Assigns request slots to client addresses, round-robin."""

    def __init__(self, max_active: int, max_per_address: int, max_queued_per_address: int) -> None:
        self._free = max_active
        self._max_per_address = max_per_address
        self._max_queued_per_address = max_queued_per_address
        self._active: dict[str, int] = {}
        self._queues: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def slot(self, address: str) -> AsyncIterator[None]:
        """Wait for a slot for an address and hold it; raise QueueFull if the address has too many queued requests."""
        await self._acquire(address)
        try:
            yield
        finally:
            self._release(address)

    async def _acquire(self, address: str) -> None:
        # Not while others are queued, even if a slot is free: they came first.
        if self._free and not self._queues and self._active.get(address, 0) < self._max_per_address:
            self._assign(address)
            return
        queue = self._queues.setdefault(address, deque())
        if len(queue) >= self._max_queued_per_address:
            raise QueueFull
        slot = asyncio.get_running_loop().create_future()
        queue.append(slot)
        self._dispatch()
        try:
            await slot
        except asyncio.CancelledError:
            if slot.done() and not slot.cancelled():
                # The slot was assigned at the moment of cancellation.
                self._release(address)
            else:
                self._dequeue(address, slot)
            raise

    def _assign(self, address: str) -> None:
        self._free -= 1
        self._active[address] = self._active.get(address, 0) + 1

    def _release(self, address: str) -> None:
        self._free += 1
        self._active[address] -= 1
        if not self._active[address]:
            del self._active[address]
        self._dispatch()

    def _dequeue(self, address: str, slot: asyncio.Future[None]) -> None:
        queue = self._queues.get(address)
        if queue is not None and slot in queue:
            queue.remove(slot)
            if not queue:
                del self._queues[address]

    def _dispatch(self) -> None:
        """Assign free slots to queued requests, round-robin over addresses."""
        for address in [*self._queues]:
            if not self._free:
                return
            if self._active.get(address, 0) >= self._max_per_address:
                continue
            queue = self._queues[address]
            slot = queue.popleft()
            if queue:
                self._queues.move_to_end(address)
            else:
                del self._queues[address]
            # It is done if its request was cancelled and has not run since.
            if not slot.done():
                self._assign(address)
                slot.set_result(None)
