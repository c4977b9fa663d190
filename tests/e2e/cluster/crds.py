"""Structural schemas as the API server applies them, for documents in a test.

Stricter in one point: a field that the schema does not know is an error here, because the server would
drop it without a word.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import yaml

_QUANTITY = re.compile(r"[+-]?([0-9]+|[0-9]+\.[0-9]*|\.[0-9]+)([numkKMGTPE]i?|[eE][+-]?[0-9]+)?")


class Schemas:
    """The CRDs of a cluster by kind and version."""

    def __init__(self, files: Iterable[Path]) -> None:
        self._schemas: dict[tuple[str, str], Any] = {}
        for crd in (one for path in files for one in yaml.safe_load_all(path.read_text()) if one):
            if crd.get("kind") == "CustomResourceDefinition":
                self._add(crd["spec"])

    def _add(self, spec: Mapping[str, Any]) -> None:
        for version in spec["versions"]:
            key = (f"{spec['group']}/{version['name']}", spec["names"]["kind"])
            self._schemas[key] = _closed(version["schema"]["openAPIV3Schema"], top=True)

    @property
    def kinds(self) -> frozenset[str]:
        """Return the kinds that have a schema."""
        return frozenset(kind for _, kind in self._schemas)

    def problems(self, document: Mapping[str, Any]) -> list[str]:
        """Return what the server would refuse or drop, each with its place."""
        schema = self._schemas[(document["apiVersion"], document["kind"])]
        validator = jsonschema.Draft7Validator(schema, format_checker=jsonschema.FormatChecker())
        found = [
            f"{'.'.join(map(str, one.path))}: {one.message[:300]}" for one in validator.iter_errors(document)
        ]
        return [*found, *_duplicates(document, schema, ()), *_bad_amounts(document, ())]


def _closed(schema: Any, *, top: bool = False) -> Any:
    """Return a schema that refuses fields it does not know; metadata is the server's own."""
    schema = copy.copy(schema)
    if schema.pop("x-kubernetes-int-or-string", False):
        schema.pop("type", None)
        schema["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    if "properties" in schema:
        schema["properties"] = {key: _closed(value) for key, value in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            schema["additionalProperties"] = False
        if top:
            schema["properties"] |= {"metadata": {"type": "object"}}
    for field in ("items", "additionalProperties"):
        if isinstance(schema.get(field), Mapping):
            schema[field] = _closed(schema[field])
    return schema


def _duplicates(value: Any, schema: Any, path: tuple[str, ...]) -> Iterator[str]:
    """Yield the items of a list that have the same key: a server-side apply refuses them."""
    keys = schema.get("x-kubernetes-list-map-keys") if isinstance(schema, Mapping) else None
    if isinstance(value, list):
        if keys:
            names = [tuple(item.get(key) for key in keys) for item in value]
            yield from (f"{'.'.join(path)}: {name} twice" for name in set(names) if names.count(name) > 1)
        for item in value:
            yield from _duplicates(item, schema.get("items", {}), path)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _duplicates(item, schema.get("properties", {}).get(key, {}), (*path, key))


def _bad_amounts(value: Any, path: tuple[str, ...]) -> Iterator[str]:
    """Yield amounts that no container could be given."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if path[-1:] in (("requests",), ("limits",)) and not _QUANTITY.fullmatch(str(item)):
                yield f"{'.'.join((*path, key))}: {item} is not an amount"
            yield from _bad_amounts(item, (*path, key))
    elif isinstance(value, list):
        for item in value:
            yield from _bad_amounts(item, path)
