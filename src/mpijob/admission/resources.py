"""Names of cluster resources in messages: `limits.memory` is memory limits, `nvidia.com/gpu` is GPUs."""

from __future__ import annotations

from mpijob.model.spec.quantity import as_bytes, as_count

_DISPLAY_NAMES = {"cpu": "CPU cores", "memory": "of memory", "ephemeral-storage": "of disk"}
_FIELDS = {"cpu": "cpu", "memory": "memory"}


def display_name(resource: str) -> str:
    """Return the name of a resource as written after its amount."""
    kind, _, name = resource.partition(".")
    if kind == "limits":
        return {"cpu": "CPU cores as limits", "memory": "of memory as limits"}.get(name, f"{name} as limits")
    if kind == "requests":
        return display_name(name)
    if resource.startswith("count/"):
        return f"{resource.removeprefix('count/')} objects"
    if resource.endswith("/gpu"):
        return "GPUs"
    return _DISPLAY_NAMES.get(resource, resource)


def format_amount(resource: str, amount: float) -> str:
    """Format an amount of a resource: bytes as `16 GiB`, others as a plain number."""
    is_bytes = resource.endswith(("memory", "storage")) or "hugepages-" in resource
    return as_bytes(amount) if is_bytes else as_count(amount)


def field_of(resource: str, role: str, group: str = "") -> str:
    """Return the job's field for a resource: `resources.memory`, `launcher.cpu`; of a group `groups`."""
    if group:
        return "groups"
    section = "launcher" if role == "launcher" else "resources"
    if resource.endswith("/gpu") or "/mig-" in resource:
        return f"{section}.gpu"
    return f"{section}.{_FIELDS[resource]}" if resource in _FIELDS else f"{section}.others"
