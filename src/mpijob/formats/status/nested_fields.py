"""Safe access to fields of Kubernetes objects: missing or malformed fields are empty, and nothing raises.

Objects of foreign kinds come from anywhere, and a status may be incomplete.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from mpijob.model.spec import quantity
from mpijob.model.spec.enums import GPU_KINDS, MIG_PREFIX

Mapped = Mapping[str, Any]
_NOTHING: Mapped = {}


def part(value: Any, *path: str) -> Mapped:
    """Return the mapping at a path, an empty one if there is none."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else _NOTHING


def parts(value: Any, *path: str) -> list[Mapped]:
    """Return the mappings in the list at a path."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return [one for one in value if isinstance(one, dict)] if isinstance(value, (list, tuple)) else []


def text(value: Any, *path: str) -> str:
    """Return the text at a path, "" if there is none."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    if isinstance(value, str):
        return value
    return "" if value is None or isinstance(value, (dict, list)) else str(value)


def number(value: Any, *path: str) -> int | None:
    """Return the integer at a path, also if it is written as text."""
    found = text(value, *path)
    return int(found) if found.removeprefix("-").isdecimal() and len(found) < 19 else None


def moment(value: Any, *path: str) -> float | None:
    """Return the time at a path as seconds since the epoch."""
    return time_of(text(value, *path))


def time_of(stamp: str) -> float | None:
    """Return an RFC 3339 time as seconds since the epoch, None for anything else."""
    try:
        found = datetime.fromisoformat(stamp)
    except ValueError:
        return None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def conditions(document: Any) -> dict[str, Mapped]:
    """Return an object's conditions by type."""
    return {text(condition, "type"): condition for condition in parts(document, "status", "conditions")}


def holds(condition: Mapped | None) -> bool:
    """Return whether a condition exists and is True."""
    return condition is not None and condition.get("status") == "True"


def labels(document: Any) -> Mapped:
    return part(document, "metadata", "labels")


def notes(document: Any) -> Mapped:
    """Return an object's annotations."""
    return part(document, "metadata", "annotations")


def is_gpu(resource: str) -> bool:
    """Return whether a resource is a GPU or a MIG slice."""
    return resource in GPU_KINDS or resource.startswith(MIG_PREFIX)


def thing(resource: str) -> str:
    """Return a resource's name in sentences: `GPUs`, `CPU cores`, `memory`."""
    resource = resource.removeprefix("requests.").removeprefix("limits.")
    if is_gpu(resource):
        return "GPUs"
    return {"cpu": "CPU cores", "memory": "memory", "ephemeral-storage": "local disk"}.get(resource, resource)


def amount(resource: str, written: str) -> str:
    """Return an amount without its name: `4`, `0.05`, `16 GiB`; a malformed amount is returned unchanged."""
    try:
        value = quantity.parse(written)
    except ValueError:
        return written
    return quantity.as_bytes(value) if thing(resource) in _IN_BYTES else quantity.as_count(value)


def counted(resource: str, written: str) -> str:
    """Return an amount with its name: `4 GPUs`, `1 CPU core`, `16 GiB of memory`."""
    name, value = thing(resource), amount(resource, written)
    if name in _IN_BYTES:
        return f"{value} of {name}"
    singular = value == "1" and name in ("GPUs", "CPU cores")
    return f"{value} {name[:-1] if singular else name}"


def in_words(items: Sequence[str]) -> str:
    """Return a list as sentences say it: `a, b and c`."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}" if items else ""


_IN_BYTES = ("memory", "local disk")
