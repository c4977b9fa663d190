"""How blocking calls reach an engine whose methods are coroutines.

A plain engine never suspends, so its coroutines are driven right here, without an event loop: that
is why `mpijob list` starts fast. Other engines live on the loop of `portal.Portal`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from mpijob.errors import BackendError

if TYPE_CHECKING:
    from mpijob.backends.protocol import Backend

T = TypeVar("T")


class Bridge(Protocol):
    """Runs coroutines and streams for a caller that blocks."""

    def call(self, work: Awaitable[T]) -> T:
        """Return the result of the work."""

    def iterate(self, stream: AsyncIterator[T]) -> Iterator[T]:
        """Yield what the stream yields; close it when the caller stops."""

    def close(self) -> None:
        """Give back what the bridge holds."""


class Direct:
    """The bridge to a plain engine."""

    def call(self, work: Awaitable[T]) -> T:
        """Return the result of the work."""
        return drive(work)

    def iterate(self, stream: AsyncIterator[T]) -> Iterator[T]:
        """Yield what the stream yields; close it when the caller stops."""
        try:
            while True:
                try:
                    item = drive(stream.__anext__())
                except StopAsyncIteration:
                    return
                yield item
        finally:
            drive(close(stream))

    def close(self) -> None:
        """Nothing is held."""


def drive(work: Awaitable[T]) -> T:
    """Run work that never suspends to its end and return its result."""
    steps = work.__await__()
    try:
        next(steps)
    except StopIteration as done:
        return cast(T, done.value)
    if hasattr(steps, "close"):
        steps.close()
    raise BackendError("a plain engine suspended, which it promised not to do")


async def close(stream: AsyncIterator[Any]) -> None:
    """Close a stream if it is one that can be closed."""
    if aclose := getattr(stream, "aclose", None):
        await aclose()


def bridge_to(backend: Backend) -> Bridge:
    """Return the bridge that suits the engine."""
    if backend.plain:
        return Direct()
    from mpijob.client.portal import Portal  # loads asyncio, which a plain engine never needs

    return Portal()
