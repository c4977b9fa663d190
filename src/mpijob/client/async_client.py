"""The client for event loops: the names of `blocking.Client`, as coroutines and async iterators."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from mpijob.client.async_accounting_methods import AsyncAccounting
from mpijob.client.async_inspect import AsyncInspecting
from mpijob.client.async_kubeflow import AsyncDocumented
from mpijob.client.async_read import AsyncReading
from mpijob.client.async_write import AsyncWriting

if TYPE_CHECKING:
    from mpijob.client.submit.templates import Templates


class AsyncClient(AsyncReading, AsyncWriting, AsyncInspecting, AsyncAccounting, AsyncDocumented):
    """Jobs on one engine, by coroutines; a plain engine's calls are moved to threads.

    >>> import asyncio
    >>> from mpijob import AsyncClient, MPIJob
    >>> from mpijob.backends.memory import MemoryBackend
    >>> async def hello():
    ...     async with AsyncClient(MemoryBackend()) as client:
    ...         job = await client.run(MPIJob(name="hello", workers=2, command=["echo", "hello"]))
    ...         return [line.source async for line in job.logs()]
    >>> asyncio.run(hello())
    ['Rank-0', 'Rank-1']
    """

    @property
    def templates(self) -> Templates:
        """The job templates; plain calls, for they are small files."""
        from mpijob.client.submit.templates import Templates

        return Templates.of(self.settings)

    async def close(self) -> None:
        """Give back what the client holds; jobs go on."""
        if self.owns_backend and (close := getattr(self.backend, "close", None)):
            close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
