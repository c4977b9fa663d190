"""The inventory of objects created by the operator, by component, in a ConfigMap of its namespace.

It is written before objects are created, and again after obsolete ones are deleted, so a crash in between
leaves no object that the inventory does not have.
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
    """The inventory entries of all components, stored in the cluster."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self._namespace = namespace

    def read(self, component: str) -> list[AppliedObject]:
        config_map = self._api.find(resources.CONFIG_MAP.path(self._namespace, NAME)) or {}
        text = (config_map.get("data") or {}).get(component, "[]")
        return codec.decode(text, list[AppliedObject])

    def write(self, component: str, entries: Iterable[AppliedObject]) -> None:
        """Store the entries of a component; an empty list removes it."""
        ordered = sorted(set(entries))
        # In a merge patch, null removes the key.
        value = msgspec.json.encode(ordered).decode() if ordered else None
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
