"""Turns to be served: so many at once, of one address fewer, and everybody else's requests wait in line.

Whoever floods a service takes the turns of nobody else: an address has at most some of the turns, and where several
wait, addresses take theirs one after the other, however many requests each has in line.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class TooMany(Exception):
    """An address has more requests in line than are kept."""


class ConcurrencyLimit:
    """Hands out turns to addresses, in an order that none of them can buy."""

    def __init__(self, at_once: int, of_one: int, waiting_of_one: int) -> None:
        self._free, self._of_one, self._waiting_of_one = at_once, of_one, waiting_of_one
        self._held: dict[str, int] = {}
        self._lines: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def of(self, address: str) -> AsyncIterator[None]:
        """Wait for a turn of an address, and hold it; raise TooMany where its line is too long."""
        await self._take(address)
        try:
            yield
        finally:
            self._give_back(address)

    async def _take(self, address: str) -> None:
        if self._free and not self._lines and self._held.get(address, 0) < self._of_one:
            self._hold(address)
            return
        line = self._lines.setdefault(address, deque())
        if len(line) >= self._waiting_of_one:
            raise TooMany
        turn = asyncio.get_running_loop().create_future()
        line.append(turn)
        self._next()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._give_back(address)  # it came at the very moment at which nobody wanted it any more
            else:
                self._leave(address, turn)
            raise

    def _hold(self, address: str) -> None:
        self._free -= 1
        self._held[address] = self._held.get(address, 0) + 1

    def _give_back(self, address: str) -> None:
        self._free += 1
        self._held[address] -= 1
        if not self._held[address]:
            del self._held[address]
        self._next()

    def _leave(self, address: str, turn: asyncio.Future[None]) -> None:
        line = self._lines.get(address)
        if line is not None and turn in line:
            line.remove(turn)
            if not line:
                del self._lines[address]

    def _next(self) -> None:
        """Give free turns to those in line, one address after the other."""
        for address in [*self._lines]:
            if not self._free:
                return
            if self._held.get(address, 0) >= self._of_one:
                continue
            line = self._lines[address]
            turn = line.popleft()
            if line:
                self._lines.move_to_end(address)
            else:
                del self._lines[address]
            if not turn.done():
                self._hold(address)
                turn.set_result(None)
