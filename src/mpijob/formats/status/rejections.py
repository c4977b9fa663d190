"""What no condition tells: that an engine was refused while it made a job's parts, and what pods said before they went.

Trainer tells by one event that it cannot make a JobSet, the MPI Operator that it does not like a spec; both
leave the status empty for ever. A batch Job that may not make its pods tells it by events, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from mpijob.formats.status import pod_scheduling, pod_startup
from mpijob.formats.status.events import EventReport, Events
from mpijob.model import Exit, Role
from mpijob.model.platform.cluster_observation import Loss, Member, Obstacle, Refusal, Refused, Stage

_OF_THE_JOB = frozenset(
    {"TrainJobResourcesCreationFailed", "ValidationError", "ErrResourceExists", "MPIJobFailed"}
)
_OF_PARTS = frozenset(
    {"FailedCreate", "JobCreationFailed", "HeadlessServiceCreationFailed", "PVCCreationFailed"}
)
# A pod's name behind its job's.
_WORKER = re.compile(r"-([a-z][-a-z0-9]{0,30}?)-(?:0-)?(\d{1,6})(?:-[a-z0-9]{5})?")
_LAUNCHER = re.compile(r"-launcher(?:-0-0)?-[a-z0-9]{5}")
_QUOTA = re.compile(r"exceeded quota")
_POLICY = re.compile(r"violates PodSecurity|security context constraint|pod security")
_INVALID = re.compile(
    r"(?i)is invalid|invalid value|denied the request|validation error|not supported|unsupported"
)
# A webhook that has not heard yet of what was just made.
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
    """Return the newest no that the engine met for this job."""
    own = [one for one in events.of(kind, name, uid) if one.reason in _OF_THE_JOB and one.warning]
    parts = [one for one in events.all if one.reason in _OF_PARTS and _belongs(one, name)]
    found = max((*own, *parts), key=lambda one: one.time, default=None)
    return None if found is None else _refusal(found)


def _belongs(one: EventReport, name: str) -> bool:
    return one.kind in ("Job", "JobSet", "MPIJob") and (one.name == name or one.name.startswith(f"{name}-"))


def _refusal(one: EventReport) -> Refusal:
    kind = Refused.OTHER
    for pattern, found in ((_QUOTA, Refused.QUOTA), (_POLICY, Refused.POLICY), (_INVALID, Refused.INVALID)):
        if pattern.search(one.message):
            kind = found
            break
    words = pod_startup.shortened(_WRAPPED.sub("", one.message))
    lags = _LAG.search(one.message) is not None
    final = not lags and (
        one.reason == "ValidationError" or (kind is Refused.INVALID and one.reason != "FailedCreate")
    )
    return Refusal(text=words, kind=kind, final=final, time=one.time)


def before_start(events: Events, name: str) -> Obstacle | None:
    """Return what pods that are gone said they were waiting for, the last of it; not of those that started."""
    of_pods = [one for one in events.all if one.kind == "Pod" and one.name.startswith(f"{name}-")]
    started = {pod.name: pod.time for pod in of_pods if pod.reason == "Started"}
    told = (pod for pod in reversed(of_pods) if pod.warning and pod.reason in _BEFORE_START)
    found = (_told_before(one) for one in told if one.time >= started.get(one.name, 0.0))
    return next((one for one in found if one is not None), None)


def _told_before(one: EventReport) -> Obstacle | None:
    if one.reason == "FailedScheduling":
        return pod_scheduling.obstacle(one.message, {}, one.time)
    if one.reason == "Failed":
        return pod_startup.from_pull(one.message, one.time)
    return pod_startup.from_mount(one.message, one.time)


def departed(
    events: Events, name: str, present: Iterable[int], since: float, firsts: Mapping[str, int]
) -> Iterator[Member]:
    """Yield the workers whose pods are gone and of which only events are left, those after a time.

    `firsts` has the number of the first worker of each kind of pod, by the name that their pods have.
    """
    known = set(present)
    last: dict[int, EventReport] = {}
    for one in events.all:
        leaves = one.kind == "Pod" and one.reason in _DEPARTURES and one.time >= since
        match = _WORKER.fullmatch(one.name, len(name)) if leaves and one.name.startswith(name) else None
        index = firsts[match[1]] + int(match[2]) if match and match[1] in firsts else -1
        if index >= 0 and index not in known:
            known_better = index in last and (last[index].reason != "Killing" or one.reason == "Killing")
            # "Killing" only says that something ends it.
            if not known_better:
                last[index] = one
    for index, one in sorted(last.items()):
        yield _gone(index, one)


def departed_launcher(events: Events, name: str, since: float) -> Iterator[Member]:
    """Yield a launcher whose pod is gone and that somebody ended while it ran; one that ended by itself left none."""
    told = [
        one
        for one in events.all
        if one.kind == "Pod" and one.reason in _DEPARTURES and one.time >= since and one.name.startswith(name)
    ]
    for one in (one for one in reversed(told) if _LAUNCHER.fullmatch(one.name, len(name))):
        exit, why = (
            Exit(time=one.time),
            "" if one.reason == "Killing" else pod_startup.shortened(one.message),
        )
        loss = _DEPARTURES[one.reason]
        yield Member(
            role=Role.LAUNCHER, index=0, name=one.name, stage=Stage.ENDED, exit=exit, loss=loss, why=why
        )
        return


def _gone(index: int, one: EventReport) -> Member:
    return Member(
        role=Role.WORKER,
        index=index,
        name=one.name,
        host=re.sub(r"-[a-z0-9]{5}$", "", one.name) if one.name.count("-") > 2 else one.name,
        stage=Stage.ENDED,
        exit=Exit(time=one.time, index=index, worker=index),
        loss=_DEPARTURES[one.reason],
        why="" if one.reason == "Killing" else pod_startup.shortened(one.message),
        asked_to_end=one.time,
    )
