"""The ability that only a cluster has: its API client (see `mpijob.backends.capabilities` for all others)."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from mpijob.backends.capabilities import Capability

if TYPE_CHECKING:
    from mpijob.backends.kubernetes.client.api import Api


class SupportsKubernetesApi(Capability):
    """Talks to an API server."""

    @property
    @abstractmethod
    def api(self) -> Api:
        """The API server, with the rights of this engine's user."""
