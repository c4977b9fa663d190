"""An API server's memory for unit tests: objects by address, conflicts, merge patches, uid preconditions.

Its twin is the real one: every promise that is tested here is kept on the test bed by `tests/e2e/cluster`.
"""

from __future__ import annotations

import copy
import itertools
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from mpijob.backends.kubernetes.client.api import Api, Listing
from mpijob.backends.kubernetes.client.api_errors import ApiError
from mpijob.formats.kubernetes.metadata.well_known import Document

Hook = Callable[[str, str], None]
Names = list[str]  # a method below is called list, too
Raws = list[msgspec.Raw]


class Store(Api):
    """Keeps objects; `before` is called with method and path and may raise."""

    def __init__(self) -> None:  # never connects anywhere
        self.objects: dict[str, Document] = {}
        self.logs: dict[str, bytes] = {}
        self.asked: list[tuple[str, str]] = []
        self.before: Hook = lambda method, path: None
        self.after: Hook = lambda method, path: None
        self._uids = itertools.count(1)

    def __repr__(self) -> str:
        return f"Store({sorted(self.objects)})"

    def get(self, path: str, **query: str) -> Document:
        self._asked("GET", path)
        if path not in self.objects:
            raise ApiError("not found", status=404, reason="NotFound")
        return copy.deepcopy(self.objects[path])

    def find(self, path: str, **query: str) -> Document | None:
        try:
            return self.get(path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def list(self, path: str, *, labels: str = "", fields: str = "", **more: Any) -> Listing:
        self._asked("GET", path)
        found = [one for key, one in self.objects.items() if holds(path, key)]
        return Listing([copy.deepcopy(one) for one in found if _selected(one, labels)], "1")

    def raws(self, path: str) -> Raws:
        return [msgspec.Raw(msgspec.json.encode(one)) for one in self.list(path).items]

    def now(self) -> float:
        return time.time()

    def lanes(self, near: int = 1) -> int:
        return near

    def create(self, path: str, body: Mapping[str, Any], **more: Any) -> Document:
        self._asked("POST", path)
        made = copy.deepcopy(dict(body))
        address = f"{path}/{made['metadata']['name']}"
        if address in self.objects:
            raise ApiError("already exists", status=409, reason="AlreadyExists")
        made["metadata"]["uid"] = f"uid-{next(self._uids)}"
        made["metadata"].setdefault("creationTimestamp", datetime.now(UTC).isoformat())
        self.objects[address] = made
        self.after("POST", path)
        return copy.deepcopy(made)

    def patch(self, path: str, body: Any, **more: Any) -> Document:
        self._asked("PATCH", path)
        _merge(self.objects[path], body)
        return copy.deepcopy(self.objects[path])

    def delete(self, path: str, *, uid: str = "", **more: Any) -> Document | None:
        self._asked("DELETE", path)
        found = self.objects.get(path)
        if found is None or (uid and found["metadata"]["uid"] != uid):
            return None
        return self.objects.pop(path)

    def raw(self, path: str, **query: str) -> bytes:
        self._asked("GET", path)
        if path not in self.logs:
            raise ApiError("not found", status=404, reason="NotFound")
        first = int(query.get("tailLines", 0))
        lines = self.logs[path].splitlines(keepends=True)[-first:]
        return b"".join(lines)[: int(query.get("limitBytes", 0)) or None]

    def names(self, plural: str) -> Names:
        """Return the names of the objects of one kind."""
        return sorted(key.rpartition("/")[2] for key in self.objects if f"/{plural}/" in key)

    def _asked(self, method: str, path: str) -> None:
        self.asked.append((method, path))
        self.before(method, path)


def _collection(address: str) -> str:
    return address.rpartition("/")[0]


def holds(collection: str, address: str) -> bool:
    """Whether a collection, of a namespace or of all, holds an object."""
    root, _, plural = collection.rpartition("/")
    of_all = address.startswith(f"{root}/namespaces/") and _collection(address).endswith(f"/{plural}")
    return of_all or _collection(address) == collection


def _selected(one: Document, labels: str) -> bool:
    mine = one["metadata"].get("labels") or {}
    if " in (" in labels:
        key, _, values = labels.removesuffix(")").partition(" in (")
        return mine.get(key) in values.split(",")
    wanted = [one.partition("=") for one in labels.split(",") if one]
    return all(mine.get(key) == value if equals else key in mine for key, equals, value in wanted)


def _merge(target: Document, change: Mapping[str, Any]) -> None:
    for key, value in change.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(target.get(key), dict):
            _merge(target[key], value)
        elif isinstance(value, Mapping):
            target[key] = {}
            _merge(target[key], value)
        else:
            target[key] = copy.deepcopy(value)
