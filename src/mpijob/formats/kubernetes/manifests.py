"""Kubernetes manifests as plain values.

They are parsed by `yaml_tree`, like job files: tags, anchors, aliases and duplicate keys are errors with their
position. Unquoted scalars have the types that the API server gives them.
"""

from __future__ import annotations

import re
from typing import Any

from mpijob.errors import InvalidJob
from mpijob.formats.jobfile import yaml_tree
from mpijob.formats.jobfile.yaml_tree import Mapping, Node, Scalar, Sequence
from mpijob.formats.kubernetes.metadata.well_known import Document

_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None, "~": None, "": None}
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,18})")
_FLOAT = re.compile(r"[-+]?[0-9]{1,18}(\.[0-9]{1,18})?([eE][-+]?[0-9]{1,3})?")


def read(text: str | bytes, file: str = "") -> tuple[Document, ...]:
    """Return the objects of a file, each item of a List by itself; raise InvalidJob with the position of an error."""
    forest = yaml_tree.parse(text, file)
    if forest.findings:
        raise yaml_tree.refused(list(forest.findings), file)
    found: list[Document] = []
    for root in forest.roots:
        value = _value(root)
        if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
            place = f"{file or 'the file'}:{root.line}"
            raise InvalidJob(
                f"{place}: not a Kubernetes object", hint="it needs apiVersion, kind and metadata"
            )
        items = value.get("items")
        found += items if value["kind"].endswith("List") and isinstance(items, list) else [value]
    return tuple(found)


def _value(node: Node) -> Any:
    if isinstance(node, Mapping):
        return {key.text: _value(value) for key, value in node.entries}
    if isinstance(node, Sequence):
        return [_value(item) for item in node.items]
    assert isinstance(node, Scalar)
    return _scalar(node.text) if node.plain else node.text


def _scalar(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text
