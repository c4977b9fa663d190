"""The coroutines that look deeper than a state does; the blocking twin is `inspecting`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from mpijob.client.async_desk import AsyncDesk
from mpijob.client.front import Target

if TYPE_CHECKING:
    from mpijob.model import StackReport


class AsyncInspecting(AsyncDesk):
    """The part of the client that looks into jobs."""

    async def stacks(
        self, name: Target, ranks: Iterable[int] = (), *, namespace: str | None = None
    ) -> StackReport:
        """Return where the ranks of a running job stand, grouped: all of them, or those named."""
        from mpijob.client import lookingin

        return await lookingin.stacks(self.ref(name, namespace), self.port, ranks)
