"""Changing a spec by naming its parts: `{"workers": 8, "env.LR": 0.1, "resources.gpu": 1}`.

Clones, templates and sweeps all change specs this way; whether the result makes sense is said by
`checks` when it is submitted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from mpijob import codec
from mpijob.errors import InvalidJob
from mpijob.model import MPIJob

# Values of these are text whatever was given, as a shell would have it.
_TEXT_MAPS = ("env", "labels", "cost")


def apply(job: MPIJob, changes: Mapping[str, Any]) -> MPIJob:
    """Return a copy with the parts changed; raise InvalidJob for a part that does not exist."""
    data = msgspec.to_builtins(job)
    for path, value in changes.items():
        _set(data, path, value)
    try:
        return codec.convert(data, MPIJob)
    except msgspec.ValidationError as error:
        raise InvalidJob(f"cannot change {', '.join(changes)}: {error}") from error


def _set(data: dict[str, Any], path: str, value: Any) -> None:
    first, *rest = path.split(".", 1)
    _require(first, MPIJob, path)
    if not rest:
        data[first] = _texts(value) if first in _TEXT_MAPS else msgspec.to_builtins(value)
    elif first in _TEXT_MAPS:
        data[first] = {**data.get(first, {}), rest[0]: _text(value)}
    else:
        _set_within(data, path, msgspec.to_builtins(value))


def _set_within(data: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    kind: Any = MPIJob
    for parent in parents:
        _require(parent, kind, path)
        data[parent] = dict(data.get(parent) or {})
        data, kind = data[parent], _kind_of(kind, parent)
    _require(last, kind, path)
    data[last] = value


def _kind_of(kind: Any, field: str) -> Any:
    """Return the struct type of a field, or None for a mapping, which takes any name."""
    if kind is None:
        return None
    default = {item.name: item.default for item in msgspec.structs.fields(kind)}.get(field)
    return type(default) if isinstance(default, msgspec.Struct) else None


def _require(name: str, kind: Any, path: str) -> None:
    if kind is None or name in kind.__struct_fields__:
        return
    from mpijob.model.spec.enums import choice_hint

    raise InvalidJob(f"a job has no field '{path}'", hint=choice_hint(name, kind.__struct_fields__))


def _texts(value: Any) -> Any:
    return {key: _text(item) for key, item in value.items()} if isinstance(value, Mapping) else value


def _text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, (int, float)) else value
