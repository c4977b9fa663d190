"""The events of a cluster job in order: milestones, what users did, and Kubernetes' own events.

The milestones are those of the other engines (Submitted, GangScheduled, WorkersReady, WorldProved, Running
and the end), each with the time from an object or the launcher's log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from mpijob.backends.kubernetes.logs.pod_logs import launcher_of, role_of
from mpijob.backends.kubernetes.status.derive_state import Objects
from mpijob.errors import Severity
from mpijob.formats.kubernetes.metadata import user_actions
from mpijob.formats.status.events import Events
from mpijob.formats.status.nested_fields import time_of
from mpijob.model import Event, JobState, Role

_MILESTONES = ("Submitted", "GangScheduled", "WorkersReady", "WorldProved", "Running")
# An attempt passes each of these once.
ONCE = frozenset({*_MILESTONES, "Succeeded", "Failed"})
_LAST = 9
_OWN = (
    *_MILESTONES,
    user_actions.SUSPENDED,
    user_actions.RESUMED,
    user_actions.CANCELLED,
    user_actions.RETRYING,
    user_actions.SCALED,
    "Succeeded",
    "Failed",
)


def events(seen: Objects, state: JobState, proved: float | None) -> list[Event]:
    """Return the events of one attempt in order; `proved` is when the log reported a complete world."""
    all_events = [
        *_milestones(seen, state, proved),
        *_user_actions(seen, state),
        *_of_cluster(seen, state),
        *_end(state, proved),
        *_unread(state),
    ]
    all_events.sort(key=lambda event: (round(event.time, 3), _order(event)))
    return all_events


def numbered(all_events: list[Event]) -> list[Event]:
    """Return the events with their sequence numbers."""
    return [msgspec.structs.replace(event, sequence=number) for number, event in enumerate(all_events, 1)]


def _order(event: Event) -> int:
    # Most times are whole seconds; events of one second have the order in which they must have happened.
    if event.reason in _MILESTONES:
        return _MILESTONES.index(event.reason)
    return _LAST if event.reason in ("Succeeded", "Failed") else len(_MILESTONES)


def _milestones(seen: Objects, state: JobState, proved: float | None) -> Iterator[Event]:
    attempt, (workers, world) = state.attempt, _initial_size(seen, state)
    text = f"{workers} workers, {world} ranks" + (f", by {state.owner}" if state.owner else "")
    yield Event(state.created, "Submitted", text, attempt=attempt)
    launcher = launcher_of(seen.pods)
    if (scheduled := _scheduled(seen, workers)) is not None:
        yield Event(scheduled, "GangScheduled", f"{workers} workers are scheduled", attempt=attempt)
    if launcher is not None:
        said = state.launcher.ready if state.launcher is not None else None
        ready = said or time_of(launcher["metadata"]["creationTimestamp"]) or 0.0
        yield Event(ready, "WorkersReady", f"Launcher discovered {workers} workers", attempt=attempt)
    if proved is not None:
        text = f"{world} ranks are placed as planned"
        yield Event(proved, "WorldProved", text, attempt=attempt)
        yield Event(proved, "Running", "MPI initialization completed", attempt=attempt)


def _initial_size(seen: Objects, state: JobState) -> tuple[int, int]:
    """Return the numbers of workers and ranks at the start; an elastic job may have been scaled since."""
    from mpijob.formats.status import launcher_census

    world = launcher_census.planned(seen.job)
    if world is None or not state.world:
        return state.workers_wanted, state.world
    return world * state.workers_wanted // state.world, world


def _scheduled(seen: Objects, workers: int) -> float | None:
    """Return when the last worker was scheduled; if the workers are gone, when the launcher was created."""
    times = []
    for pod in seen.pods:
        if role_of(pod) is Role.WORKER:
            times += [_condition_time(pod, "PodScheduled")]
    known = sorted(moment for moment in times if moment is not None)
    if len(known) >= workers > 0:
        return known[workers - 1]
    launcher = launcher_of(seen.pods)
    return time_of(launcher["metadata"]["creationTimestamp"]) if launcher is not None else None


def _condition_time(pod: Mapping[str, Any], kind: str) -> float | None:
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition["type"] == kind and condition["status"] == "True":
            return time_of(condition.get("lastTransitionTime") or "")
    return None


def _user_actions(seen: Objects, state: JobState) -> Iterator[Event]:
    for act in user_actions.read(seen.job):
        yield Event(act.time, act.reason, act.message, attempt=state.attempt)


def _of_cluster(seen: Objects, state: JobState) -> Iterator[Event]:
    created = time_of(seen.job["metadata"]["creationTimestamp"])
    for event in Events(seen.events, created or 0.0).all:
        if not event.warning and event.reason in _OWN:
            # Reported by this module.
            continue
        severity = Severity.WARNING if event.warning else Severity.NOTICE
        text = f"{event.kind} {event.name}: {event.message}"
        yield Event(event.time, event.reason, text, severity, state.attempt)


def _unread(state: JobState) -> Iterator[Event]:
    """Yield a warning for objects that the user may not read."""
    for finding in state.findings:
        if finding.code == "NOT_ALL_SEEN":
            yield Event(state.created, "NotAllSeen", finding.message, Severity.WARNING, state.attempt)


def _end(state: JobState, proved: float | None) -> Iterator[Event]:
    """Yield the last event."""
    if state.finished is None or not state.phase.final or state.phase.value == "Cancelled":
        # Cancelling is an action of a user, and reported where it happened.
        return
    severity = Severity.ERROR if state.phase.value == "Failed" else Severity.NOTICE
    # A pod's end is in whole seconds, and may seem to be before a log line of the same second.
    moment = state.finished if proved is None else max(state.finished, proved)
    yield Event(moment, state.phase.value, state.message, severity, state.attempt)
