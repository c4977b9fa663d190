"""Writes a job as YAML or JSON: fields in the spec's order, without defaults.

`jobfile_reader` reads an equal job from it; both decide with `scalars` which texts need quotes.
"""

from __future__ import annotations

import json
from enum import Enum
from typing import Any

import msgspec
import yaml

from mpijob.formats.jobfile.yaml_tree import is_text
from mpijob.model import MPIJob


def write(job: MPIJob, format: str) -> str:
    """Return the job's text in one of the two formats."""
    values = plain(job)
    if format == "json":
        return json.dumps(values, indent=2, ensure_ascii=False) + "\n"
    return yaml.dump(values, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100)


def plain(part: msgspec.Struct) -> dict[str, Any]:
    """Return a part of a spec as plain values, without defaults."""
    return {
        field.encode_name: _plain(value)
        for field in msgspec.structs.fields(part)
        if not _is_default(value := getattr(part, field.name), field)
    }


def _is_default(value: Any, field: msgspec.structs.FieldInfo) -> bool:
    if field.default_factory is not msgspec.NODEFAULT:
        return bool(value == field.default_factory())
    return field.default is not msgspec.NODEFAULT and bool(value == field.default)


def _plain(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return plain(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


class Dumper(yaml.SafeDumper):
    """Dumps YAML without aliases, with quotes where a value would be ambiguous, and long texts as blocks."""

    def ignore_aliases(self, data: Any) -> bool:
        """Return True: a value that occurs twice is written twice."""
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    if not is_text(text) or not all(line.isprintable() for line in text.split("\n")):
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"')
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _list(dumper: yaml.SafeDumper, items: list[Any]) -> yaml.SequenceNode:
    words = all(isinstance(item, (str, int, float)) for item in items)
    short = words and sum(len(str(item)) + 2 for item in items) < 80
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=short)


Dumper.add_representer(str, _text)
Dumper.add_representer(list, _list)
