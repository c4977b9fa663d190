"""Select jobs by a scope: by name alone, and by state. Log lines are selected in `observation/logs/filters`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from mpijob.model import JobRef, JobState, Scope
from mpijob.model.spec.selector import selects

J = TypeVar("J")


def matches_ref(ref: JobRef, scope: Scope) -> bool:
    """Return whether namespace and name match; the job's state, which may cost a request, is not considered."""
    return (
        scope.namespace in ("", ref.namespace)
        and (not scope.names or ref.name in scope.names)
        and scope.text in ref.name
    )


def needs_state(scope: Scope) -> bool:
    """Return whether `matches_ref` is not enough to decide."""
    bounded = scope.since is not None or scope.until is not None
    return bounded or bool(scope.phases or scope.owner or scope.queue or scope.selector or scope.kinds)


def matches(state: JobState, scope: Scope) -> bool:
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


def paginate(jobs: Sequence[J], scope: Scope, sort_key: Callable[[J], int]) -> tuple[Sequence[J], str]:
    """Return one page of jobs, given in descending order, and the token of the next page; "" after the last.

    Raise InvalidJob for a token that is not one of ours, also if there are no jobs.
    """
    after = scope.place
    rest = [job for job in jobs if not after or sort_key(job) < after]
    page = rest[: scope.limit]
    return page, str(sort_key(page[-1])) if page and len(rest) > len(page) else ""
