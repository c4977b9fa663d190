"""The REST reference, written from the same routes as the OpenAPI document that the page's types come from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tools import openapi

_INTRO = (
    "The REST API of `mpijob ui`, under `/api/v1`, for the [web UI](../how-to/users/web-ui.md) and your own "
    "programs. The OpenAPI document is served at `/api/v1/openapi.json`; in a checkout it is "
    "`frontend/openapi.json`. Requests need the "
    "session cookie; requests that change something also need the CSRF token "
    "([example](../how-to/users/web-ui.md#the-rest-api)). Errors are problem documents with the "
    "messages and codes of the command line. `{namespace}` can be omitted from a path."
)
_NOTE = "<!-- written by `python -m tools.reference`; change the code, not this page -->\n"


def page() -> str:
    """Return the page of every path with its questions and answers, and of the values that they carry."""
    document = json.loads(openapi.text())
    paths = "".join(_path(path, verbs) for path, verbs in sorted(document["paths"].items()) if _own(path))
    schemas = document["components"]["schemas"]
    values = "".join(_schema(name, schemas[name]) for name in sorted(_used(document["paths"], schemas)))
    return f"{_NOTE}# REST\n\n{_INTRO}\n\n## Paths\n\n{paths}## Schemas\n\n{values.rstrip()}\n"


def _own(path: str) -> bool:
    """Leave out the short form of a path whose long form is told."""
    return "/trainjobs/{name}" not in path


def _path(path: str, verbs: dict[str, Any]) -> str:
    return "".join(_operation(verb, path, told) for verb, told in verbs.items() if verb != "parameters")


def _operation(verb: str, path: str, told: dict[str, Any]) -> str:
    questions = {one["name"]: one for one in told.get("parameters", ()) if one.get("in") == "query"}
    asks = "".join(
        f"| `{name}` | {_cell(_kind(one.get('schema', {})))} |\n" for name, one in questions.items()
    )
    table = f"| query parameter | type |\n| --- | --- |\n{asks}\n" if asks else ""
    status, answer = next((item for item in told["responses"].items() if item[0] != "default"), ("", {}))
    body = _content(told.get("requestBody", {}))
    given = f"Body: {body}. " if body else ""
    back = _content(answer)
    gives = f"Response {status}{f': {back}' if back else ''}."
    return f"### {verb.upper()} `{path}`\n\n{told.get('summary', '')}\n\n{table}{given}{gives}\n\n"


def _content(body: dict[str, Any]) -> str:
    kinds = (_kind(one.get("schema", {})) or kind for kind, one in body.get("content", {}).items())
    return " or ".join(dict.fromkeys(kinds))


def _schema(name: str, schema: dict[str, Any]) -> str:
    lead = " ".join(schema.get("description", "").split())
    needed = schema.get("required", ())
    rows = "".join(
        f"| `{field}` | {_cell(_kind(one))} | {'yes' if field in needed else ''} |\n"
        for field, one in schema.get("properties", {}).items()
    )
    table = f"| field | type | required |\n| --- | --- | --- |\n{rows}" if rows else f"{_kind(schema)}\n"
    return f"### `{name}`\n\n{lead}\n\n{table}\n"


def _kind(schema: dict[str, Any] | bool) -> str:
    """Return what a value is, in a few words."""
    if isinstance(schema, bool):
        return ""
    if "prefixItems" in schema:
        return f"list of {', '.join(_kind(one) for one in schema['prefixItems'])}"
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name.rpartition('.')[2]}](#{name.lower().replace('.', '')})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_kind(one) for one in schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(f"`{word}`" for word in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {})) or 'anything'}"
    return str(schema.get("type", ""))


def _used(paths: Any, schemas: dict[str, Any]) -> set[str]:
    """Return the values that paths name, and those inside these."""
    found, todo = set[str](), set(_names(paths))
    while todo:
        found |= todo
        todo = {name for one in todo for name in _names(schemas[one])} - found
    return found


def _names(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        if "$ref" in part:
            yield part["$ref"].rpartition("/")[2]
        for one in part.values():
            yield from _names(one)
    elif isinstance(part, list):
        for one in part:
            yield from _names(one)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
