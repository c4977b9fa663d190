"""The capability that only a cluster has: its API client (`mpijob.backends.capabilities` has all others)."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from mpijob.backends.capabilities import Capability

if TYPE_CHECKING:
    from mpijob.backends.kubernetes.client.api import Api


class SupportsKubernetesApi(Capability):
    """Has an API server."""

    @property
    @abstractmethod
    def api(self) -> Api:
        """The API client, with the permissions of this engine's user."""
