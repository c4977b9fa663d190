"""Generate the OpenAPI document from the route table; the page's types are generated from it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from mpijob import __version__
from mpijob.api.request_context import JSON, Route
from mpijob.api.schemas.job_schemas import Problem

PREFIX = "/api/v1"
_REF = "#/components/schemas/{name}"


def document(routes: Iterable[Route]) -> dict[str, Any]:
    routes = tuple(routes)
    kinds = [kind for route in routes for kind in (route.answer, route.body) if kind is not None]
    kinds = [kind for kind in dict.fromkeys(kinds) if kind != dict[str, Any]] + [Problem]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REF)
    named = dict(zip(kinds, schemas, strict=True))
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(PREFIX + route.path, {})[route.method.lower()] = _operation(route, named)
    return {
        "openapi": "3.1.0",
        "info": {"title": "mpijob", "version": __version__, "license": {"name": "Apache-2.0"}},
        "paths": paths,
        "components": {
            "schemas": _tidy(components),
            "securitySchemes": {"session": {"type": "apiKey", "in": "cookie", "name": "mpijob-session"}},
        },
    }


def _operation(route: Route, named: dict[Any, Any]) -> dict[str, Any]:
    good: dict[str, Any] = {"description": route.summary}
    if route.answer is not None:
        good["content"] = {route.media: {"schema": named.get(route.answer, {"type": "object"})}}
    made: dict[str, Any] = {
        "operationId": _name(route),
        "summary": route.summary,
        "security": [] if route.open else [{"session": []}],
        "parameters": [*_path_words(route), *_query_words(route)],
        "responses": {
            str(route.status): good,
            "default": {"description": "Error.", "content": {JSON: {"schema": named[Problem]}}},
        },
    }
    if route.body is not None:
        made["requestBody"] = {"required": True, "content": {JSON: {"schema": named[route.body]}}}
    return made


def _name(route: Route) -> str:
    short = "_by_name" if "{name}" in route.path and "{namespace}" not in route.path else ""
    return f"{route.handler.__name__}{short}"


def _path_words(route: Route) -> list[dict[str, Any]]:
    words = re.findall(r"\{(\w+)\}", route.path)
    return [{"name": word, "in": "path", "required": True, "schema": {"type": "string"}} for word in words]


def _query_words(route: Route) -> list[dict[str, Any]]:
    if route.query is None:
        return []
    _, components = msgspec.json.schema_components([route.query], ref_template=_REF)
    own = components[route.query.__name__]["properties"]
    return [
        {"name": name, "in": "query", "schema": _inline(schema, components)} for name, schema in own.items()
    ]


def _inline(schema: Any, components: dict[str, Any]) -> Any:
    """Resolve the references in a schema; those of query parameters are small."""
    if isinstance(schema, list):
        return [_inline(item, components) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inline(components[schema["$ref"].rpartition("/")[2]], components)
    return {key: _inline(value, components) for key, value in schema.items()}


def _tidy(schema: Any) -> Any:
    """Make schemas reproducible: defaults of sets are sorted, tuples of one type become arrays."""
    if isinstance(schema, list):
        return [_tidy(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _tidy(value) for key, value in schema.items()}
    if made.get("type") == "array" and isinstance(made.get("default"), list):
        made["default"] = sorted(made["default"], key=str)
    kinds = made.get("prefixItems") or ()
    # The generator of the page's types does not support prefixItems.
    if kinds and all(kind == kinds[0] for kind in kinds):
        del made["prefixItems"]
        made["items"] = kinds[0]
    return made
