"""Collecting the jobs of a time for `diagnosis.patterns`, written once for both clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpijob.client.submit import resubmit
from mpijob.diagnosis import patterns
from mpijob.errors import NotFound
from mpijob.model import Phase

if TYPE_CHECKING:
    from mpijob.backends.protocol import Backend
    from mpijob.diagnosis.patterns import Fleet
    from mpijob.model import JobState, Scope

ENDED = (Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED)
MOST_JOBS, MOST_LOOKS = 5000, 500


def look(scope: Scope, backend: Backend, *, since: float, until: float, least: int) -> Fleet:
    """Return what the jobs that ended in a time have in common; where a list tells no cause, the job is asked."""
    found: list[JobState] = []
    looks = 0
    for state in resubmit.pages(scope, backend):
        if not since <= (state.finished or 0.0) <= until:
            continue
        if state.phase is Phase.FAILED and not state.findings and looks < MOST_LOOKS:
            looks += 1
            state = _whole(state, backend)
        found.append(state)
        if len(found) >= MOST_JOBS:
            break
    return patterns.find(found, since=since, until=until, least=least)


def _whole(state: JobState, backend: Backend) -> JobState:
    try:
        return backend.get(state.ref)
    except NotFound:  # deleted meanwhile
        return state
