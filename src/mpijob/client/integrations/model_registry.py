"""Register a job's model in the model registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpijob.backends.capabilities import SupportsModelRegistry
from mpijob.errors import Conflict, InvalidJob, Unsupported
from mpijob.model import JobRef, Model, Phase

if TYPE_CHECKING:
    from mpijob.backends.model_registry import Registered
    from mpijob.backends.protocol import Backend


def register(backend: Backend, ref: JobRef, model: Model | None) -> Registered:
    """Register the model; raise Conflict for a job that has not succeeded."""
    state = backend.get(ref)
    if state.phase is not Phase.SUCCEEDED:
        raise Conflict(
            f"job '{ref.name}' is {state.phase.value}, and only a succeeded job has a model",
            hint=f"wait for it: mpijob wait {ref.name}",
        )
    wanted = model or (backend.spec(ref)).model
    if wanted is None:
        raise InvalidJob(f"job '{ref.name}' has no model field", hint="name it with --model NAME")
    registry = backend.capability(SupportsModelRegistry)
    if registry is None:
        raise Unsupported(f"engine {backend.name} keeps no files that could be registered")
    return registry.register(state.ref, wanted)
