"""One pod of a launcher or worker: its stage, what it waits for, and how it ended.

`job_conditions` decides which worker a pod is. `pod_scheduling` and `pod_startup` read why it waits.
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
# `status.reason` of a pod that the kubelet or the node controller has ended.
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
# Reasons of the DisruptionTarget condition, which the API server's clients set before they delete a pod.
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
    """A pod with its main container, that container's status, and its conditions."""

    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        self.known = conditions(pod)
        self.main = container_of(part(pod, "spec"))
        self.status = self._status()
        self.terminated = self._terminated()
        self.asked = asked_to_end(pod)
        self.stage = self._stage()

    def _status(self) -> Mapping[str, Any]:
        name, statuses = text(self.main, "name"), parts(self.pod, "status", "containerStatuses")
        return next(
            (status for status in statuses if text(status, "name") == name), statuses[0] if statuses else {}
        )

    def _terminated(self) -> Mapping[str, Any]:
        """Return the end of the main container, or of a failed init container."""
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
        """Whether the Ready condition is False; without the condition it is not known."""
        ready = self.known.get("Ready")
        return ready is not None and not holds(ready)

    @property
    def disrupted(self) -> Mapping[str, Any]:
        """The DisruptionTarget condition if it is True, else empty."""
        found = self.known.get("DisruptionTarget")
        return found if found is not None and holds(found) else {}

    def since(self, kind: str) -> float | None:
        return moment(self.known.get(kind), "lastTransitionTime")


def member(pod: Pod, role: Role, index: int, events: Events) -> Member:
    """Return the state of one launcher or worker."""
    view, name = _View(pod), text(pod, "metadata", "name")
    reports = events.of("Pod", name, text(pod, "metadata", "uid"))
    ended, limits = view.stage is Stage.ENDED, part(view.main, "resources", "limits")
    started_at = moment(view.status, "state", "running", "startedAt") or moment(view.terminated, "startedAt")
    return Member(
        role=role,
        index=index,
        name=name,
        stage=view.stage,
        host=text(pod, "spec", "hostname") or name,
        node=text(pod, "spec", "nodeName"),
        obstacle=_obstacle(view, reports),
        exit=_exit(view, index, role) if ended else None,
        loss=_loss(view),
        last_words=text(view.terminated, "message")[:_LAST_WORDS].strip(),
        why=_why(view),
        asked_to_end=view.asked,
        machine_silent=not ended and _silent(view, reports),
        restarts=number(view.status, "restartCount") or 0,
        cores=_cores(part(view.main, "resources")),
        memory_limit_bytes=_bytes(text(limits, "memory")),
        gpus=sum(number(limits, kind) or 0 for kind in limits if is_gpu(kind)),
        container=text(view.main, "name"),
        created=moment(pod, "metadata", "creationTimestamp"),
        placed=view.since("PodScheduled"),
        started=started_at,
    )


def _obstacle(view: _View, reports: Iterable[EventReport]) -> Obstacle | None:
    if view.stage is Stage.PREPARING and number(view.terminated, "exitCode"):
        how = f"Exited with {number(view.terminated, 'exitCode')}, and is being restarted"
        return Obstacle(
            hurdle=StartupProblem.RESTARTING, text=how, since=moment(view.terminated, "finishedAt")
        )
    if view.stage is Stage.PREPARING:
        # Imported for waiting pods only: it would delay every command.
        from mpijob.formats.status import pod_startup

        return pod_startup.obstacle(view.pod, reports)
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
    # Containers on a lost node have no final status: the pod ended when it was disrupted, or when a condition changed.
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
    # A pod that was deleted before it ever ran has this reason, too.
    unfound = ended == "ContainerStatusUnknown" and view.asked is not None
    if ended in _BY_CONTAINER and not unfound:
        return _BY_CONTAINER[ended]
    return Loss.DELETED if view.asked is not None else Loss.NONE


def _why(view: _View) -> str:
    """Return the cluster's message about a pod's end or disruption, as one line."""
    message = text(view.pod, "status", "message") or text(view.disrupted, "message")
    if not message and text(view.terminated, "reason") in _BY_CONTAINER.keys() - {"OOMKilled"}:
        message = text(view.terminated, "message")
    if not message:
        return ""
    from mpijob.formats.status import pod_startup

    return pod_startup.shortened(message)


def asked_to_end(pod: Pod) -> float | None:
    """Return when a pod's deletion was requested: its deletionTimestamp is later by the grace period."""
    stamp = moment(pod, "metadata", "deletionTimestamp")
    return None if stamp is None else stamp - (number(pod, "metadata", "deletionGracePeriodSeconds") or 0)


def _silent(view: _View, reports: Iterable[EventReport]) -> bool:
    # Only the node lifecycle controller knows, and says so in an event. It sets Ready to False at about the same time.
    if text(view.pod, "status", "reason") == "NodeLost":
        return True
    since = view.since("Ready") or 0.0
    return view.unready and any(
        report.reason == "NodeNotReady" and report.time >= since - 5 for report in reports
    )


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
    """Return the newest pod of each place; earlier ones count as its restarts."""
    places: dict[tuple[Role, int], list[Member]] = {}
    for member in members:
        places.setdefault((member.role, member.index), []).append(member)
    last = [_last(pods) for pods in places.values()]
    return tuple(sorted(last, key=lambda one: (one.role is not Role.LAUNCHER, one.index)))


def _last(pods: list[Member]) -> Member:
    newest = max(reversed(pods), key=lambda one: one.created or 0.0)
    earlier = sum(pod.restarts + 1 for pod in pods if pod is not newest)
    return msgspec.structs.replace(newest, restarts=newest.restarts + earlier) if earlier else newest
