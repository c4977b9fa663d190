"""The SDK: runs checks, admission, planning and the engine in order; `AsyncClient` wraps the same calls.

The names below are loaded when first used: asking for `Client` does not load asyncio.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mpijob.client.async_client import AsyncClient, AsyncJob
    from mpijob.client.client import Client
    from mpijob.client.job import Job
    from mpijob.client.observe import compare
    from mpijob.client.submit import array, function, templates
    from mpijob.client.submit import array as sweep
    from mpijob.client.submit.templates import load_job

__all__ = [
    "AsyncClient",
    "AsyncJob",
    "Client",
    "Job",
    "array",
    "compare",
    "function",
    "load_job",
    "sweep",
    "templates",
]

_HOMES = {
    "AsyncClient": "async_client",
    "AsyncJob": "async_client",
    "Client": "client",
    "Job": "job",
    "load_job": "submit.templates",
}
_MODULES = {
    "array": "submit.array",
    "compare": "observe.compare",
    "function": "submit.function",
    # The name of `array` in 0.1.
    "sweep": "submit.array",
    "templates": "submit.templates",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"mpijob.client.{_MODULES[name]}")
    if name not in _HOMES:
        raise AttributeError(f"module 'mpijob.client' has no attribute {name!r}")
    return getattr(import_module(f"mpijob.client.{_HOMES[name]}"), name)
