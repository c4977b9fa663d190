"""The root of the async verbs: a front whose port never blocks the loop."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from mpijob.client.async_job import AsyncJob
from mpijob.client.audit.recorder import witnessed
from mpijob.client.base import BaseClient
from mpijob.client.history.fallback import remembering
from mpijob.client.threaded import Threaded, moved
from mpijob.model import JobRef
from mpijob.settings import Settings

if TYPE_CHECKING:
    from mpijob.backends.protocol import Backend

T = TypeVar("T")


class AsyncBase(BaseClient):
    """A front whose calls are coroutines."""

    def __init__(
        self,
        backend: Backend | None = None,
        *,
        namespace: str | None = None,
        settings: Settings | None = None,
    ) -> None:
        super().__init__(backend, namespace=namespace, settings=settings)
        self._audited: Backend = witnessed(self.backend, self.settings)  # blocks where the engine does
        self.port: Backend = Threaded(self._audited) if self.backend.plain else self._audited
        reads = remembering(self._audited)  # asks the past for jobs that are gone
        self._records: Backend = Threaded(reads) if self.backend.plain else reads

    async def apart(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do work that reads much, of a plain engine in a thread."""
        return await moved(work) if self.backend.plain else await work()

    async def _job(self, ref: JobRef) -> AsyncJob:
        from mpijob.client.async_client import AsyncClient

        assert isinstance(self, AsyncClient)
        return AsyncJob(self, await self.port.get(ref))
