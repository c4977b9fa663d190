"""The root of the blocking verbs: a front with a bridge behind it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from mpijob.client.base import BaseClient
from mpijob.client.bridge import bridge_to
from mpijob.client.job import Job

if TYPE_CHECKING:
    from mpijob.backends.protocol import Backend
    from mpijob.model import JobRef
    from mpijob.settings import Settings


class BlockingBase(BaseClient):
    """A front whose calls block."""

    def __init__(
        self,
        backend: Backend | None = None,
        *,
        namespace: str | None = None,
        settings: Settings | None = None,
    ) -> None:
        super().__init__(backend, namespace=namespace, settings=settings)
        self._bridge = bridge_to(self.backend)

    @cached_property
    def _audited(self) -> Backend:
        """The engine for what the audit tells of: acts, and looks into jobs."""
        from mpijob.client.audit.recorder import witnessed  # a list needs none: start-up is a feature

        return witnessed(self.backend, self.settings)

    @cached_property
    def _records(self) -> Backend:
        """The engine for questions, which the past answers for jobs that are gone."""
        from mpijob.client.history.fallback import remembering

        return remembering(self._audited)

    def _job(self, ref: JobRef) -> Job:
        from mpijob.client.client import Client

        assert isinstance(self, Client)
        return Job(self, self._bridge.call(self.backend.get(ref)))
