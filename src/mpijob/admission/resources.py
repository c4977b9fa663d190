"""A cluster's resource names as sentences say them: `limits.memory` is memory limits, `nvidia.com/gpu` GPUs."""

from __future__ import annotations

from mpijob.model.spec.quantity import as_bytes, as_count

_WORDS = {"cpu": "CPU cores", "memory": "of memory", "ephemeral-storage": "of disk"}
_FIELDS = {"cpu": "cpu", "memory": "memory"}


def named(resource: str) -> str:
    """Return what a resource is called behind its amount."""
    form, _, name = resource.partition(".")
    if form == "limits":
        return {"cpu": "CPU cores as limits", "memory": "of memory as limits"}.get(name, f"{name} as limits")
    if form == "requests":
        return named(name)
    if resource.startswith("count/"):
        return f"{resource.removeprefix('count/')} objects"
    if resource.endswith("/gpu"):
        return "GPUs"
    return _WORDS.get(resource, resource)


def number(resource: str, amount: float) -> str:
    """Return an amount of a resource: bytes as `16 GiB`, all else as a plain number."""
    sized = resource.endswith(("memory", "storage")) or "hugepages-" in resource
    return as_bytes(amount) if sized else as_count(amount)


def field_of(resource: str, role: str) -> str:
    """Return the field of the job that says it: `resources.memory`, `launcher.cpu`."""
    part = "launcher" if role == "launcher" else "resources"
    if resource.endswith("/gpu") or "/mig-" in resource:
        return f"{part}.gpu"
    return f"{part}.{_FIELDS[resource]}" if resource in _FIELDS else f"{part}.others"
