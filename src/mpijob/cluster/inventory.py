"""What the operator has made, component by component, in a config map of its own namespace.

It is written before anything is made and again after what is no longer wanted is gone, so a kill in between
leaves nothing that the inventory does not know.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from mpijob import codec
from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api import PARTIAL, Api
from mpijob.cluster.apply import MANAGER, AppliedObject

NAME = "mpijob-inventory"


class Inventory:
    """The entries of every component, kept in the cluster."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self._namespace = namespace

    def read(self, component: str) -> list[AppliedObject]:
        """Return what was made for a component."""
        found = self._api.find(resources.CONFIG_MAP.path(self._namespace, NAME)) or {}
        text = (found.get("data") or {}).get(component, "[]")
        return codec.decode(text, list[AppliedObject])

    def write(self, component: str, entries: Iterable[AppliedObject]) -> None:
        """Remember what belongs to a component; nothing forgets it."""
        listed = sorted(set(entries))
        value = msgspec.json.encode(listed).decode() if listed else None
        path = resources.CONFIG_MAP.path(self._namespace, NAME)
        if self._api.find(path) is None:
            self._api.create(resources.CONFIG_MAP.path(self._namespace), self._document(), manager=MANAGER)
        self._api.patch(path, {"data": {component: value}}, manager=MANAGER, accept=PARTIAL)

    def _document(self) -> dict[str, object]:
        metadata = {
            "name": NAME,
            "namespace": self._namespace,
            "labels": {"app.kubernetes.io/part-of": "mpijob"},
        }
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {}}
