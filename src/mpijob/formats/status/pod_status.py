"""One pod, read as a launcher or worker: how far it has come, what is in its way, how it ended.

Whose pod it is, and which number it has, is told by labels that each engine writes in its own way; see
`job_conditions`. What keeps a pod waiting is read by `pod_scheduling` and `pod_startup`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from mpijob.formats.kubernetes.metadata.well_known import container_of
from mpijob.formats.status.events import EventReport, Events
from mpijob.formats.status.nested_fields import conditions, holds, is_gpu, moment, number, part, parts, text
from mpijob.model import Exit, Role
from mpijob.model.platform.cluster_observation import Loss, Member, Obstacle, Stage, StartupProblem
from mpijob.model.spec import quantity

Pod = Mapping[str, Any]
_LAST_WORDS = 2000
_BY_REASON = {
    "Evicted": Loss.EVICTED,
    "NodeLost": Loss.MACHINE,
    "NodeShutdown": Loss.MACHINE,
    "Shutdown": Loss.MACHINE,
    "Terminated": Loss.MACHINE,
    "Preempting": Loss.PREEMPTED,
    "UnexpectedAdmissionError": Loss.NOT_STARTED,
    "NodeAffinity": Loss.NOT_STARTED,
}
_BY_DISRUPTION = {
    "PreemptionByScheduler": Loss.PREEMPTED,
    "EvictionByEvictionAPI": Loss.DRAINED,
    "DeletionByTaintManager": Loss.MACHINE,
    "DeletionByPodGC": Loss.MACHINE,
    "TerminationByKubelet": Loss.EVICTED,
}
_BY_CONTAINER = {
    "OOMKilled": Loss.MEMORY,
    "ContainerStatusUnknown": Loss.MACHINE,
    "StartError": Loss.NOT_STARTED,
    "ContainerCannotRun": Loss.NOT_STARTED,
}


class _View:
    """A pod with what is asked of it again and again: its main container, that one's status, its conditions."""

    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        self.known = conditions(pod)
        self.main = container_of(part(pod, "spec"))
        self.status = self._status()
        self.terminated = self._terminated()
        self.asked = asked_to_end(pod)
        self.stage = self._stage()

    def _status(self) -> Mapping[str, Any]:
        """Return the status of the container that does the work."""
        name, every = text(self.main, "name"), parts(self.pod, "status", "containerStatuses")
        return next((one for one in every if text(one, "name") == name), every[0] if every else {})

    def _terminated(self) -> Mapping[str, Any]:
        """Return how the pod's work ended: the main container's end, or that of a failed preparation."""
        if done := part(self.status, "state", "terminated"):
            return done
        ends = (
            part(status, "state", "terminated")
            for status in parts(self.pod, "status", "initContainerStatuses")
        )
        failed = next((end for end in ends if end and number(end, "exitCode")), None)
        return failed or part(self.status, "lastState", "terminated")

    def _stage(self) -> Stage:
        phase = text(self.pod, "status", "phase")
        policy, ended = text(self.pod, "spec", "restartPolicy"), part(self.status, "state", "terminated")
        stays = policy == "Never" or (policy == "OnFailure" and number(ended, "exitCode") == 0)
        if phase in ("Succeeded", "Failed") or (ended and stays):
            return Stage.ENDED
        if part(self.status, "state", "running"):
            return Stage.READY if self.status.get("ready") is True and not self.unready else Stage.STARTED
        return Stage.PREPARING if text(self.pod, "spec", "nodeName") else Stage.WAITING

    @property
    def unready(self) -> bool:
        """Whether the cluster says that the pod is not ready."""
        ready = self.known.get("Ready")
        return ready is not None and not holds(ready)

    @property
    def disrupted(self) -> Mapping[str, Any]:
        """The condition by which the cluster says that it wants the pod away, empty where it does not."""
        found = self.known.get("DisruptionTarget")
        return found if found is not None and holds(found) else {}

    def since(self, kind: str) -> float | None:
        """Return when a condition became what it is."""
        return moment(self.known.get(kind), "lastTransitionTime")


def member(pod: Pod, role: Role, index: int, events: Events) -> Member:
    """Return what a pod shows of its launcher or worker."""
    view, name = _View(pod), text(pod, "metadata", "name")
    told = events.of("Pod", name, text(pod, "metadata", "uid"))
    ended, limits = view.stage is Stage.ENDED, part(view.main, "resources", "limits")
    began = moment(view.status, "state", "running", "startedAt") or moment(view.terminated, "startedAt")
    return Member(
        role=role,
        index=index,
        name=name,
        stage=view.stage,
        host=text(pod, "spec", "hostname") or name,
        node=text(pod, "spec", "nodeName"),
        obstacle=_obstacle(view, told),
        exit=_exit(view, index, role) if ended else None,
        loss=_loss(view),
        last_words=text(view.terminated, "message")[:_LAST_WORDS].strip(),
        why=_why(view),
        asked_to_end=view.asked,
        machine_silent=not ended and _silent(view, told),
        restarts=number(view.status, "restartCount") or 0,
        cores=_cores(part(view.main, "resources")),
        memory_limit_bytes=_bytes(text(limits, "memory")),
        gpus=sum(number(limits, kind) or 0 for kind in limits if is_gpu(kind)),
        container=text(view.main, "name"),
        created=moment(pod, "metadata", "creationTimestamp"),
        placed=view.since("PodScheduled"),
        started=began,
    )


def _obstacle(view: _View, told: Iterable[EventReport]) -> Obstacle | None:
    if view.stage is Stage.PREPARING and number(view.terminated, "exitCode"):
        how = f"Exited with {number(view.terminated, 'exitCode')}, and is being restarted"
        return Obstacle(
            hurdle=StartupProblem.RESTARTING, text=how, since=moment(view.terminated, "finishedAt")
        )
    if view.stage is Stage.PREPARING:
        # Only for pods that wait: start-up is a feature.
        from mpijob.formats.status import pod_startup

        return pod_startup.obstacle(view.pod, told)
    if view.stage is not Stage.WAITING:
        return None
    scheduled = view.known.get("PodScheduled")
    since = view.since("PodScheduled") or moment(view.pod, "metadata", "creationTimestamp")
    if text(scheduled, "reason") == "SchedulingGated":
        return Obstacle(
            hurdle=StartupProblem.HELD_BACK, text="Held until its queue or gang admits it", since=since
        )
    if text(scheduled, "reason") == "Unschedulable":
        from mpijob.formats.status import pod_scheduling

        return pod_scheduling.obstacle(text(scheduled, "message"), _requests(view), since)
    return Obstacle(hurdle=StartupProblem.PLACING, text="Waiting for a node", since=since)


def _requests(view: _View) -> dict[str, str]:
    """Return what a pod's main container asks for, by resource."""
    asked = dict(part(view.main, "resources", "limits")) | dict(part(view.main, "resources", "requests"))
    return {str(name): str(value) for name, value in asked.items()}


def _exit(view: _View, index: int, role: Role) -> Exit:
    code, signal = number(view.terminated, "exitCode"), number(view.terminated, "signal")
    worker = index if role is Role.WORKER else None
    if code is None and text(view.pod, "status", "phase") == "Succeeded":
        code = 0
    time = moment(view.terminated, "finishedAt") or _ended_at(view) or 0.0
    return Exit(code=None if signal else code, signal=signal or None, time=time, index=index, worker=worker)


def _ended_at(view: _View) -> float | None:
    """Return when a pod ended whose containers left no word: when it was disrupted, or no longer ready."""
    if view.disrupted:
        return view.since("DisruptionTarget")
    stamps = (view.since(kind) for kind in view.known if kind != "PodScheduled")
    return max((stamp for stamp in stamps if stamp is not None), default=None)


def _loss(view: _View) -> Loss:
    if view.disrupted:
        return _BY_DISRUPTION.get(text(view.disrupted, "reason"), Loss.DELETED)
    reason = text(view.pod, "status", "reason")
    if reason in _BY_REASON:
        return _BY_REASON[reason]
    if reason.startswith("OutOf"):
        return Loss.NOT_STARTED
    ended = text(view.terminated, "reason") if view.stage is Stage.ENDED else ""
    # so ends, too, what was removed before it ever ran
    unfound = ended == "ContainerStatusUnknown" and view.asked is not None
    if ended in _BY_CONTAINER and not unfound:
        return _BY_CONTAINER[ended]
    return Loss.DELETED if view.asked is not None else Loss.NONE


def _why(view: _View) -> str:
    """Return what the cluster says about how a pod ended or why it is disturbed, as one line."""
    said = text(view.pod, "status", "message") or text(view.disrupted, "message")
    if not said and text(view.terminated, "reason") in _BY_CONTAINER.keys() - {"OOMKilled"}:
        said = text(view.terminated, "message")
    if not said:
        return ""
    from mpijob.formats.status import pod_startup

    return pod_startup.shortened(said)


def asked_to_end(pod: Pod) -> float | None:
    """Return when a pod's removal was asked for: its deletion time stamp lies in the future by the grace."""
    stamp = moment(pod, "metadata", "deletionTimestamp")
    return None if stamp is None else stamp - (number(pod, "metadata", "deletionGracePeriodSeconds") or 0)


def _silent(view: _View, told: Iterable[EventReport]) -> bool:
    """Whether the pod's machine does not answer: nobody but the node's controller says so, by an event."""
    if text(view.pod, "status", "reason") == "NodeLost":
        return True
    since = view.since("Ready") or 0.0
    return view.unready and any(one.reason == "NodeNotReady" and one.time >= since - 5 for one in told)


def _bytes(written: str) -> int | None:
    try:
        return int(quantity.parse(written)) if written else None
    except ValueError:
        return None


def _cores(resources: Mapping[str, Any]) -> float | None:
    written = text(resources, "requests", "cpu") or text(resources, "limits", "cpu")
    try:
        return quantity.parse(written) if written else None
    except ValueError:
        return None


def newest(members: Iterable[Member]) -> tuple[Member, ...]:
    """Return one member a place: of several pods the one made last, with the others as its restarts."""
    places: dict[tuple[Role, int], list[Member]] = {}
    for member in members:
        places.setdefault((member.role, member.index), []).append(member)
    last = [_last(pods) for pods in places.values()]
    return tuple(sorted(last, key=lambda one: (one.role is not Role.LAUNCHER, one.index)))


def _last(pods: list[Member]) -> Member:
    newest = max(reversed(pods), key=lambda one: one.created or 0.0)
    earlier = sum(pod.restarts + 1 for pod in pods if pod is not newest)
    return msgspec.structs.replace(newest, restarts=newest.restarts + earlier) if earlier else newest
