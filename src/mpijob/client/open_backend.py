"""Which engine a user's settings mean; each is loaded only when it is chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpijob.errors import InvalidJob
from mpijob.settings import CLUSTER, LOCAL, Settings

if TYPE_CHECKING:
    from mpijob.backends.protocol import Backend

ENGINES = (LOCAL, CLUSTER, "memory")


def open_backend(settings: Settings) -> Backend:
    """Return the engine that the settings name."""
    if settings.engine in ("", LOCAL):
        from mpijob.backends.local import LocalBackend

        return LocalBackend(settings)
    if settings.engine == CLUSTER:
        from mpijob.backends.kubernetes.backend import KubernetesBackend

        return KubernetesBackend(settings)
    if settings.engine == "memory":
        from mpijob.backends.memory import MemoryBackend

        return MemoryBackend()
    from mpijob.model.spec.enums import choice_hint

    raise InvalidJob(
        f"there is no engine '{settings.engine}'",
        hint=f"set MPIJOB_ENGINE or `engine` in the settings file; {choice_hint(settings.engine, ENGINES)}",
    )
