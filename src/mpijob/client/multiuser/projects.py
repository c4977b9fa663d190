"""The projects of a user: OpenShift's own list, or the cluster's namespaces in which they may list jobs."""

from __future__ import annotations

import time
from collections.abc import Iterable

from mpijob.backends.capabilities import SupportsProjects
from mpijob.client.async_client import AsyncClient
from mpijob.client.multiuser.sessions import FRESH_SECONDS, JOBS, Scope, UserSession
from mpijob.client.threads import run_in_thread
from mpijob.errors import BackendError, NotAllowed, NotFound
from mpijob.model.platform.form_options import Option

# Namespaces for which permissions are reviewed.
_MOST = 300


class Projects:
    """The namespaces that the server can list, and which of them a user may use."""

    def __init__(self, server: AsyncClient) -> None:
        self._server = server
        self._known: tuple[float, tuple[Option, ...]] = (float("-inf"), ())

    async def of(self, session: UserSession) -> tuple[Option, ...]:
        """Return the projects of a user, by name."""
        try:
            found = await _listed(session.client)
        except (NotAllowed, NotFound):
            # Many users may not list namespaces; the server may.
            found = await self._all()
        found = found[:_MOST]
        seen = await session.visible((one.name, resource) for one in found for resource in JOBS)
        usable = {namespace for namespace, _ in seen}
        return tuple(one for one in found if one.name in usable)

    async def set_default_namespace(self, session: UserSession, scopes: Iterable[Scope]) -> None:
        """Give a user a default namespace: the first one in which they may list jobs."""
        own = session.client.namespace
        if not await session.visible((own, resource) for resource in JOBS):
            seen = sorted(namespace for namespace, _ in await session.visible(scopes))
            names = seen or [one.name for one in await self.of(session)]
            session.client.namespace = names[0] if names else own
        session.has_namespace = True

    async def _all(self) -> tuple[Option, ...]:
        if time.monotonic() - self._known[0] > FRESH_SECONDS:
            try:
                found = await _listed(self._server)
            except (NotAllowed, BackendError):
                found = ()
            self._known = (time.monotonic(), found)
        return self._known[1]


async def _listed(client: AsyncClient) -> tuple[Option, ...]:
    known = client.backend.capability(SupportsProjects)
    return () if known is None else await run_in_thread(known.projects)
