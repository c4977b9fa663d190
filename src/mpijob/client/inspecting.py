"""The verbs that look deeper than a state does: stacks of ranks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from mpijob.client.desk import Desk

if TYPE_CHECKING:
    from mpijob.client.front import Target
    from mpijob.model import StackReport


class Inspecting(Desk):
    """The part of the client that looks into jobs."""

    def stacks(self, name: Target, ranks: Iterable[int] = (), *, namespace: str | None = None) -> StackReport:
        """Return where the ranks of a running job stand, grouped: all of them, or those named."""
        from mpijob.client import lookingin

        return self._bridge.call(lookingin.stacks(self.ref(name, namespace), self.backend, ranks))
