"""Which jobs belong to a scope; which lines belong to a query is the business of `observation.filters`."""

from __future__ import annotations

from mpijob.model import JobState, Scope
from mpijob.model.selector import selects


def belongs(state: JobState, scope: Scope) -> bool:
    """Return whether a job is one that the scope is about."""
    return (
        scope.namespace in ("", state.ref.namespace)
        and (not scope.names or state.ref.name in scope.names)
        and (not scope.phases or state.phase.value in scope.phases)
        and (not scope.owner or state.owner == scope.owner)
        and (not scope.queue or state.queue == scope.queue)
        and scope.text in state.ref.name
        and selects(scope.selector, state.labels)
    )
