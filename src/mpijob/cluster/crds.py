"""The definitions of our custom resources, generated from the structs in `model/platform/governance`.

The API server requires structural schemas: every field typed, no references, no unions. They are derived here
from msgspec's type information, so that a field is defined once. Docstrings become the descriptions that
`kubectl explain` prints.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from enum import EnumMeta
from functools import cache
from typing import Any

import msgspec
from msgspec import inspect as types

from mpijob.cluster import crd_docs
from mpijob.model.platform.governance import (
    GROUP,
    SINGLETON,
    VERSION,
    NamespaceLimits,
    Platform,
    PlatformStatus,
)

Schema = dict[str, Any]
_READY = '.status.conditions[?(@.type=="Ready")]'


@cache
def documents() -> tuple[Schema, ...]:
    """Return every CRD as it is applied to a cluster."""
    return platform(), limits()


def platform() -> Schema:
    """Return the CRD of `MPIJobPlatform`, a singleton called `default`."""
    # Cluster-scoped like `MPIJobLimits`: plain RBAC keeps administrators of a namespace from changing its limits
    # (docs/decisions/0025).
    columns = (
        _column("State", "string", ".spec.managementState"),
        _column("Ready", "string", f"{_READY}.status"),
        _column("Reason", "string", f"{_READY}.reason"),
        _column("Age", "date", ".metadata.creationTimestamp"),
    )
    rule = {
        "rule": f"self.metadata.name == '{SINGLETON}'",
        "message": f"the only instance is called '{SINGLETON}'",
    }
    root = _root(Platform, PlatformStatus) | {"x-kubernetes-validations": [rule]}
    return _definition("MPIJobPlatform", "mpijobplatforms", ["mjp"], root, columns)


def limits() -> Schema:
    """Return the CRD of `MPIJobLimits`: one per namespace with limits, named like the namespace."""
    columns = (
        _column("Workers", "integer", ".spec.maxWorkers"),
        _column("GPUs", "integer", ".spec.maxGpus"),
        _column("Jobs", "integer", ".spec.concurrentJobs"),
        _column("Queue", "string", ".spec.queue"),
        _column("Enforcement", "string", ".spec.enforcement"),
        _column("Age", "date", ".metadata.creationTimestamp"),
    )
    return _definition("MPIJobLimits", "mpijoblimits", ["mjl"], _root(NamespaceLimits, None), columns)


def _definition(
    kind: str, plural: str, short: list[str], schema: Schema, columns: tuple[Schema, ...]
) -> Schema:
    subresources: Schema = {"subresources": {"status": {}}} if "status" in schema["properties"] else {}
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "additionalPrinterColumns": [*columns],
        **subresources,
    }
    names = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{GROUP}",
            "labels": {"app.kubernetes.io/part-of": "mpijob", "app.kubernetes.io/component": "crds"},
        },
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": names | {"shortNames": short, "categories": ["mpijob-platform"]},
            "versions": [version],
        },
    }


def _column(name: str, kind: str, path: str) -> Schema:
    return {"name": name, "type": kind, "jsonPath": path}


def _root(spec: type[msgspec.Struct], status: type[msgspec.Struct] | None) -> Schema:
    properties = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": _struct(types.type_info(spec)),
    }
    if status is not None:
        properties["status"] = _struct(types.type_info(status))
    return {"type": "object", "description": _docstring(spec), "properties": properties}


def _struct(info: types.Type) -> Schema:
    assert isinstance(info, types.StructType)
    schema: Schema = {
        "type": "object",
        "description": _docstring(info.cls),
        "properties": {field.encode_name: _field(info.cls, field) for field in info.fields},
    }
    required = [field.encode_name for field in info.fields if field.required]
    return schema | ({"required": required} if required else {})


def _field(owner: type, field: types.Field) -> Schema:
    schema = _schema(field.type)
    if description := crd_docs.description(owner, field.name):
        schema = {**schema, "description": description}
    value = field.default
    has_default = isinstance(value, (str, int, float, bool)) and value != ""
    return schema | ({"default": msgspec.to_builtins(value)} if has_default else {})


def _schema(info: types.Type) -> Schema:
    match info:
        case types.UnionType():
            # Optional fields: structural schemas have absence instead of null.
            (inner,) = [part for part in info.types if not isinstance(part, types.NoneType)]
            return _schema(inner)
        case types.StructType():
            return _struct(info)
        case types.EnumType():
            return {"type": "string", "description": _docstring(info.cls), "enum": _enum_values(info.cls)}
        case types.VarTupleType():
            return {"type": "array", "items": _schema(info.item_type)}
        case types.DictType():
            return {"type": "object", "additionalProperties": _schema(info.value_type)}
        case _:
            return _scalar(info)


def _scalar(info: types.Type) -> Schema:
    match info:
        case types.BoolType():
            return {"type": "boolean"}
        case types.IntType():
            return _with_bounds({"type": "integer", "format": "int64"}, info)
        case types.FloatType():
            return _with_bounds({"type": "number"}, info)
        case types.StrType():
            return {"type": "string"} | ({"pattern": info.pattern} if info.pattern else {})
    raise TypeError(f"a resource cannot have a field of {info}")


def _with_bounds(schema: Schema, info: types.IntType | types.FloatType) -> Schema:
    if info.ge is not None:
        schema["minimum"] = info.ge
    if info.gt is not None:
        schema |= {"minimum": info.gt, "exclusiveMinimum": True}
    if info.le is not None:
        schema["maximum"] = info.le
    return schema


def _enum_values(enumeration: EnumMeta) -> list[str]:
    members: Mapping[str, Any] = enumeration.__members__
    return [str(member.value) for member in members.values()]


def _docstring(cls: type) -> str:
    return " ".join(inspect.getdoc(cls).split()) if cls.__doc__ else ""  # type: ignore[union-attr] # it has one
