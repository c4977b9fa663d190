"""Which jobs belong to a scope; which lines belong to a query is the business of `observation/logs/filters`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from mpijob.model import JobRef, JobState, Scope
from mpijob.model.spec.selector import selects

J = TypeVar("J")


def matches_ref(ref: JobRef, scope: Scope) -> bool:
    """Return whether a job may be one that the scope is about, as far as its address tells."""
    return (
        scope.namespace in ("", ref.namespace)
        and (not scope.names or ref.name in scope.names)
        and scope.text in ref.name
    )


def needs_state(scope: Scope) -> bool:
    """Return whether a scope asks for more than addresses tell."""
    bounded = scope.since is not None or scope.until is not None
    return bounded or bool(scope.phases or scope.owner or scope.queue or scope.selector or scope.kinds)


def matches(state: JobState, scope: Scope) -> bool:
    """Return whether a job is one that the scope is about."""
    return (
        matches_ref(state.ref, scope)
        and (not scope.phases or state.phase.value in scope.phases)
        and (not scope.owner or state.owner == scope.owner)
        and (not scope.queue or state.queue == scope.queue)
        and (not scope.kinds or state.kind.lower() in scope.kinds)
        and (scope.since is None or state.created >= scope.since)
        and (scope.until is None or state.created < scope.until)
        and selects(scope.selector, state.labels)
    )


def paginate(jobs: Sequence[J], scope: Scope, order: Callable[[J], int]) -> tuple[Sequence[J], str]:
    """Return one page of jobs, given in falling `order`, and where the next page begins; "" after the last."""
    place = scope.place  # refused even where there are no jobs
    rest = [job for job in jobs if not place or order(job) < place]
    page = rest[: scope.limit]
    return page, str(order(page[-1])) if page and len(rest) > len(page) else ""
