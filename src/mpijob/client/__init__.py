"""The SDK: conducts checks, admission, plan and engine in that order, async once and blocking by composition.

The names below are loaded when first used: asking for `Client` does not load asyncio.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mpijob.client.async_client import AsyncClient, AsyncJob
    from mpijob.client.client import Client
    from mpijob.client.job import Job

__all__ = ["AsyncClient", "AsyncJob", "Client", "Job"]

_HOMES = {"AsyncClient": "async_client", "AsyncJob": "async_client", "Client": "client", "Job": "job"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mpijob.client' has no attribute {name!r}")
    return getattr(import_module(f"mpijob.client.{_HOMES[name]}"), name)
