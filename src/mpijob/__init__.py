"""MPI jobs: one spec for a laptop and a cluster.

The names below are the public API. They are loaded at their first use, so that `import mpijob` is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mpijob.client import AsyncClient, Client, Job
    from mpijob.client.admin.images import inspect_image
    from mpijob.client.observe.diagnose import diagnose
    from mpijob.errors import JobFailed, MpiJobError
    from mpijob.model import JobState, MPIJob, Phase, Resources
    from mpijob.model.status.metric_line import report

__version__ = "0.1.1"
__all__ = [
    "AsyncClient",
    "Client",
    "Job",
    "JobFailed",
    "JobState",
    "MPIJob",
    "MpiJobError",
    "Phase",
    "Resources",
    "diagnose",
    "inspect_image",
    "report",
]

_HOMES = {
    "AsyncClient": "mpijob.client",
    "Client": "mpijob.client",
    "Job": "mpijob.client",
    "JobFailed": "mpijob.errors",
    "JobState": "mpijob.model",
    "MPIJob": "mpijob.model",
    "MpiJobError": "mpijob.errors",
    "Phase": "mpijob.model",
    "Resources": "mpijob.model",
    "diagnose": "mpijob.client.observe.diagnose",
    "inspect_image": "mpijob.client.admin.images",
    "report": "mpijob.model.status.metric_line",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mpijob' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
