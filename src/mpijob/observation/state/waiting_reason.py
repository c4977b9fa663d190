"""Describes in one sentence what a job on a cluster waits for: the most serious obstacle of its pods.

Pods usually wait for the same thing; it is reported once, with their names and for how long. Durations are
rounded coarsely, so that a message changes only when something has changed: each change is an event.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from mpijob.model import Role
from mpijob.model.platform.cluster_observation import (
    ClusterObservation,
    Member,
    Obstacle,
    Refused,
    StartupProblem,
    WaitKind,
)
from mpijob.observation.state.phase import Reason

# In the order of severity, the most serious first.
REASONS = {
    StartupProblem.IMAGE_NAME: Reason.IMAGE_NAME,
    StartupProblem.IMAGE_MISSING: Reason.IMAGE_NOT_FOUND,
    StartupProblem.IMAGE_REFUSED: Reason.IMAGE_REFUSED,
    StartupProblem.SETTINGS: Reason.SETTINGS_MISSING,
    StartupProblem.START_FAILED: Reason.START_REFUSED,
    StartupProblem.RESTARTING: Reason.RETRYING,
    StartupProblem.IMAGE_FAILED: Reason.IMAGE_FAILED,
    StartupProblem.VOLUME: Reason.VOLUME_NOT_READY,
    StartupProblem.NO_PLACE: Reason.UNSCHEDULABLE,
    StartupProblem.HELD_BACK: Reason.WAITING,
    StartupProblem.PLACING: Reason.STARTING,
    StartupProblem.PULLING: Reason.PULLING,
    StartupProblem.PREPARING: Reason.STARTING,
    StartupProblem.STARTING: Reason.STARTING,
}
HOLDS = {
    WaitKind.WAITING: Reason.WAITING,
    WaitKind.TOO_LARGE: Reason.QUOTA_TOO_SMALL,
    WaitKind.MISSING: Reason.QUEUE_MISSING,
    WaitKind.CLOSED: Reason.QUEUE_CLOSED,
    WaitKind.CHECKS: Reason.WAITING,
    WaitKind.UNHEARD: Reason.WAITING,
    WaitKind.PREEMPTED: Reason.PREEMPTED,
    WaitKind.EVICTED: Reason.REQUEUED,
    WaitKind.DEACTIVATED: Reason.DEACTIVATED,
}
REFUSALS = {
    Refused.QUOTA: Reason.QUOTA_USED_UP,
    Refused.POLICY: Reason.POLICY_REFUSED,
    Refused.INVALID: Reason.REFUSED,
    Refused.OTHER: Reason.REFUSED,
}
# Steps of every start: they only take time.
PASSING = frozenset(
    {
        StartupProblem.PLACING,
        StartupProblem.PULLING,
        StartupProblem.PREPARING,
        StartupProblem.STARTING,
        StartupProblem.HELD_BACK,
    }
)
_SEVERITY = {hurdle: place for place, hurdle in enumerate(REASONS)}
_MOST_NAMED = 4


class Waiting(NamedTuple):
    """The most serious obstacle, with a message that names the members that wait."""

    obstacle: Obstacle
    reason: Reason
    text: str

    @property
    def passing(self) -> bool:
        return self.obstacle.hurdle in PASSING


def most_serious(members: Iterable[Member], wanted: int, now: float) -> Waiting | None:
    """Return what the members wait for; None if nothing prevents their start."""
    groups: dict[tuple[StartupProblem, str], list[Member]] = {}
    for member in members:
        if member.obstacle is not None:
            groups.setdefault((member.obstacle.hurdle, member.obstacle.text), []).append(member)
    if not groups:
        return None
    group = min(groups.values(), key=lambda waiting: (_severity(waiting[0]), -len(waiting)))
    obstacle = _oldest(group)
    parts = [member_names(group, wanted), *([duration] if (duration := elapsed(obstacle.since, now)) else [])]
    return Waiting(obstacle, REASONS[obstacle.hurdle], f"{obstacle.text} ({', '.join(parts)})")


def last_obstacle(job: ClusterObservation) -> Obstacle | None:
    """Return what an ended job was still waiting for."""
    # Pods that are being deleted show steps of a start, which are no obstacles.
    left = most_serious(job.members, job.about.workers_wanted, 0.0)
    return left.obstacle if left is not None and not left.passing else job.before


def _severity(member: Member) -> int:
    return len(_SEVERITY) if member.obstacle is None else _SEVERITY[member.obstacle.hurdle]


def _oldest(group: Sequence[Member]) -> Obstacle:
    known = [member.obstacle for member in group if member.obstacle is not None]
    return min(known, key=lambda obstacle: float("inf") if obstacle.since is None else obstacle.since)


def member_names(group: Sequence[Member], wanted: int) -> str:
    """Return the names of the members: `worker 2`, `workers 0, 1 and 3`, `all 8 workers`, `the launcher`."""
    workers = sorted({member.index for member in group if member.role is Role.WORKER})
    names = ["the launcher"] if any(member.role is Role.LAUNCHER for member in group) else []
    if len(workers) == wanted > 1:
        names.append(f"all {wanted} workers")
    elif len(workers) > _MOST_NAMED:
        names.append(f"{len(workers)} of {wanted} workers")
    elif workers:
        names.append(f"worker{'s' if len(workers) > 1 else ''} {_and([str(index) for index in workers])}")
    return _and(names)


def _and(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else ""


def elapsed(since: float | None, now: float) -> str:
    """Return a coarse duration: `for 40 s`, `for 3 min`, `for 2 h`; "" below 10 seconds."""
    seconds = 0.0 if since is None else now - since
    if seconds < 10:
        return ""
    if seconds < 60:
        return f"for {int(seconds // 10) * 10} s"
    return f"for {int(seconds // 60)} min" if seconds < 7200 else f"for {int(seconds // 3600)} h"


def queue_reason(job: ClusterObservation) -> tuple[Reason, str]:
    """Return why a queue holds the job back."""
    queue = job.queue
    if queue is None:
        return Reason.WAITING, "Waiting for its turn"
    text = queue.text or f"Waiting for queue {queue.name} to process the job"
    is_ending = any(member.alive for member in job.members)
    return HOLDS[queue.hold], f"{text}; its pods are still ending" if is_ending else text
