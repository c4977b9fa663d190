"""What is in no status: refused creations of a job's objects, and the last messages of pods that are gone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from mpijob.formats.status import pod_scheduling, pod_startup
from mpijob.formats.status.events import EventReport, Events
from mpijob.model import Exit, Role
from mpijob.model.platform.cluster_observation import Loss, Member, Obstacle, Refusal, Refused, Stage

# Trainer and the MPI Operator report in an event only that they cannot create a JobSet or do not accept a spec; the
# status stays empty (trainer#3671). A batch Job reports pods that it may not create in events, too.
_JOB_REASONS = frozenset(
    {"TrainJobResourcesCreationFailed", "ValidationError", "ErrResourceExists", "MPIJobFailed"}
)
_CHILD_REASONS = frozenset(
    {"FailedCreate", "JobCreationFailed", "HeadlessServiceCreationFailed", "PVCCreationFailed"}
)
# A worker pod's name after its job's name.
_WORKER = re.compile(r"-([a-z][-a-z0-9]{0,30}?)-(?:0-)?(\d{1,6})(?:-[a-z0-9]{5})?")
_LAUNCHER = re.compile(r"-launcher(?:-0-0)?-[a-z0-9]{5}")
_QUOTA = re.compile(r"exceeded quota")
_POLICY = re.compile(r"violates PodSecurity|security context constraint|pod security")
_INVALID = re.compile(
    r"(?i)is invalid|invalid value|denied the request|validation error|not supported|unsupported"
)
# A webhook whose cache does not have a new object yet; the engine tries again.
_LAG = re.compile(r"denied the request.* not found")
_WRAPPED = re.compile(
    r"^(?:TrainJob resources reconciliation failed: |Error creating: |Found validation errors: )+"
)
_DEPARTURES = {
    "Evicted": Loss.EVICTED,
    "Preempted": Loss.PREEMPTED,
    "TaintManagerEviction": Loss.MACHINE,
    "NodeNotReady": Loss.MACHINE,
    "Killing": Loss.DELETED,
}
_BEFORE_START = ("FailedScheduling", "Failed", "FailedMount", "FailedAttachVolume")


def refusal(events: Events, kind: str, name: str, uid: str) -> Refusal | None:
    """Return the newest refusal that the engine met for a job."""
    own = [event for event in events.of(kind, name, uid) if event.reason in _JOB_REASONS and event.warning]
    parts = [event for event in events.all if event.reason in _CHILD_REASONS and _belongs(event, name)]
    found = max((*own, *parts), key=lambda event: event.time, default=None)
    return None if found is None else _refusal(found)


def _belongs(event: EventReport, name: str) -> bool:
    return event.kind in ("Job", "JobSet", "MPIJob") and (
        event.name == name or event.name.startswith(f"{name}-")
    )


def _refusal(event: EventReport) -> Refusal:
    kind = Refused.OTHER
    for pattern, found in ((_QUOTA, Refused.QUOTA), (_POLICY, Refused.POLICY), (_INVALID, Refused.INVALID)):
        if pattern.search(event.message):
            kind = found
            break
    words = pod_startup.shortened(_WRAPPED.sub("", event.message))
    lags = _LAG.search(event.message) is not None
    final = not lags and (
        event.reason == "ValidationError" or (kind is Refused.INVALID and event.reason != "FailedCreate")
    )
    return Refusal(text=words, kind=kind, final=final, time=event.time)


def before_start(events: Events, name: str) -> Obstacle | None:
    """Return what pods that are gone waited for last, unless they had started."""
    of_pods = [event for event in events.all if event.kind == "Pod" and event.name.startswith(f"{name}-")]
    started = {pod.name: pod.time for pod in of_pods if pod.reason == "Started"}
    reports = (pod for pod in reversed(of_pods) if pod.warning and pod.reason in _BEFORE_START)
    found = (_startup_obstacle(event) for event in reports if event.time >= started.get(event.name, 0.0))
    return next((event for event in found if event is not None), None)


def _startup_obstacle(event: EventReport) -> Obstacle | None:
    if event.reason == "FailedScheduling":
        return pod_scheduling.obstacle(event.message, {}, event.time)
    if event.reason == "Failed":
        return pod_startup.from_pull(event.message, event.time)
    return pod_startup.from_mount(event.message, event.time)


def departed(
    events: Events, name: str, present: Iterable[int], since: float, firsts: Mapping[str, int]
) -> Iterator[Member]:
    """Yield workers whose pods are gone and of which only events after `since` are left.

    `firsts` has the number of the first worker of each replicated job.
    """
    known = set(present)
    last: dict[int, EventReport] = {}
    for event in events.all:
        leaves = event.kind == "Pod" and event.reason in _DEPARTURES and event.time >= since
        match = _WORKER.fullmatch(event.name, len(name)) if leaves and event.name.startswith(name) else None
        index = firsts[match[1]] + int(match[2]) if match and match[1] in firsts else -1
        if index >= 0 and index not in known:
            known_better = index in last and (last[index].reason != "Killing" or event.reason == "Killing")
            # "Killing" has no cause; any other reason replaces it.
            if not known_better:
                last[index] = event
    for index, event in sorted(last.items()):
        yield _gone(index, event)


def departed_launcher(events: Events, name: str, since: float) -> Iterator[Member]:
    """Yield a launcher whose pod was deleted while it ran; one that ended by itself leaves no event."""
    reports = [
        event
        for event in events.all
        if event.kind == "Pod"
        and event.reason in _DEPARTURES
        and event.time >= since
        and event.name.startswith(name)
    ]
    for event in (event for event in reversed(reports) if _LAUNCHER.fullmatch(event.name, len(name))):
        exit, why = (
            Exit(time=event.time),
            "" if event.reason == "Killing" else pod_startup.shortened(event.message),
        )
        loss = _DEPARTURES[event.reason]
        yield Member(
            role=Role.LAUNCHER, index=0, name=event.name, stage=Stage.ENDED, exit=exit, loss=loss, why=why
        )
        return


def _gone(index: int, event: EventReport) -> Member:
    return Member(
        role=Role.WORKER,
        index=index,
        name=event.name,
        host=re.sub(r"-[a-z0-9]{5}$", "", event.name) if event.name.count("-") > 2 else event.name,
        stage=Stage.ENDED,
        exit=Exit(time=event.time, index=index, worker=index),
        loss=_DEPARTURES[event.reason],
        why="" if event.reason == "Killing" else pod_startup.shortened(event.message),
        asked_to_end=event.time,
    )
