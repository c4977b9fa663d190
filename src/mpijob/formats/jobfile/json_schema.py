"""The JSON Schema of job files, and `mpijob explain FIELD`, both from the model.

Sentences are from `model/spec/field_docs`, types from msgspec, names of types from `model/spec/type_check`.
"""

from __future__ import annotations

from typing import Any

import msgspec
import yaml
from msgspec import inspect

from mpijob.errors import NotFound
from mpijob.model import MPIJob
from mpijob.model.spec.enums import did_you_mean, shown
from mpijob.model.spec.field_docs import FIELDS
from mpijob.model.spec.type_check import called, job_type

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_ONE_LINE = frozenset({"command", "args"})


class Explanation(msgspec.Struct, frozen=True, omit_defaults=True):
    """The description of one field; `fields` are its own fields."""

    path: str
    type: str
    description: str
    default: str = ""
    required: bool = False
    example: str = ""
    words: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a job file, each field with its description and example."""
    schema: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(msgspec.json.schema(MPIJob)))
    for name, part in schema["$defs"].items():
        for field, described in part.get("properties", {}).items():
            part["properties"][field] = _described(f"{name}.{field}", field, described)
    return {"$schema": _DRAFT, "title": "MPIJob", **schema}


def _described(key: str, field: str, schema: dict[str, Any]) -> dict[str, Any]:
    about = FIELDS[key]
    default = {"default": schema["default"]} if "default" in schema else {}
    kind = {name: value for name, value in schema.items() if name != "default"}
    # A command may be one line, which is split into words and never passed to a shell.
    if field in _ONE_LINE:
        kind = {"anyOf": [kind, {"type": "string"}]}
    if key == "MPIJob.launcher":
        default = {"default": msgspec.to_builtins(MPIJob(name="x").launcher)}
    return {"description": about.text, "examples": [yaml.safe_load(about.example)], **kind, **default}


def explain(path: str) -> Explanation:
    """Return a field's description; raise NotFound with the most similar field."""
    owner: inspect.StructType = job_type()
    parts = [part.split("[")[0] for part in path.strip(". ").split(".")]
    for index, part in enumerate(parts):
        field = _field(owner, part)
        if field is None:
            raise _no_field(owner, part, parts[:index])
        inner = _inner(field.type)
        if index == len(parts) - 1:
            return _explanation(".".join(parts), owner, field, inner)
        if inner is None:
            raise _no_field_inside(parts[: index + 1])
        owner = inner
    raise AssertionError("a path has at least one part")


def _field(owner: inspect.StructType, name: str) -> inspect.Field | None:
    return next((field for field in owner.fields if field.name == name), None)


def _inner(wanted: inspect.Type) -> inspect.StructType | None:
    """Return the structure in a field: by itself, optional, or in a list."""
    if isinstance(wanted, inspect.StructType):
        return wanted
    if isinstance(wanted, inspect.VarTupleType):
        return _inner(wanted.item_type)
    if isinstance(wanted, inspect.UnionType):
        return next((part for part in wanted.types if isinstance(part, inspect.StructType)), None)
    return None


def _explanation(
    path: str, owner: inspect.StructType, field: inspect.Field, inner: inspect.StructType | None
) -> Explanation:
    about = FIELDS[f"{owner.cls.__name__}.{field.name}"]
    words = (
        tuple(str(one.value) for one in field.type.cls) if isinstance(field.type, inspect.EnumType) else ()
    )
    return Explanation(
        path=path,
        type="one word" if words else called(field.type),
        description=about.text,
        default=_default(field),
        required=field.required,
        example=f"{field.name}: {about.example}",
        words=words or about.words,
        fields=tuple(field.name for field in inner.fields) if inner else (),
    )


def _default(field: inspect.Field) -> str:
    if field.required:
        return ""
    value = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    if isinstance(value, msgspec.Struct) or value in ((), {}, "") or value is None:
        return _filled(msgspec.to_builtins(value))
    return shown(value).strip("'")


def _filled(value: Any) -> str:
    if not value:
        return "none"
    return ", ".join(f"{name}: {item}" for name, item in value.items())


def _no_field(owner: inspect.StructType, name: str, before: list[str]) -> NotFound:
    names = [field.name for field in owner.fields]
    place = f" in {'.'.join(before)}" if before else ""
    meant = did_you_mean(name, names)
    guess = (
        f"did you mean '{'.'.join([*before, meant])}'?" if meant else f"the fields are: {', '.join(names)}"
    )
    return NotFound(f"there is no field {shown(name)}{place}", hint=guess)


def _no_field_inside(before: list[str]) -> NotFound:
    path = ".".join(before)
    return NotFound(f"{path} has no fields inside it", hint=f"ask for {path} itself")
