"""What a job on a cluster waits for, in one sentence: the gravest thing in the way of its launcher and workers.

Many members usually wait for the same thing; it is said once, with who waits and for how long. Times are
told coarsely, so that a sentence changes when something has changed.
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
}  # the gravest first
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
PASSING = frozenset(
    {
        StartupProblem.PLACING,
        StartupProblem.PULLING,
        StartupProblem.PREPARING,
        StartupProblem.STARTING,
        StartupProblem.HELD_BACK,
    }
)
_GRAVITY = {hurdle: place for place, hurdle in enumerate(REASONS)}
_NAMED = 4


class Waiting(NamedTuple):
    """The gravest obstacle, as a sentence that names who waits."""

    obstacle: Obstacle
    reason: Reason
    text: str

    @property
    def passing(self) -> bool:
        """Whether it is only work that takes its time."""
        return self.obstacle.hurdle in PASSING


def gravest(members: Iterable[Member], wanted: int, now: float) -> Waiting | None:
    """Return what the members wait for, or None when nothing is in their way."""
    groups: dict[tuple[StartupProblem, str], list[Member]] = {}
    for one in members:
        if one.obstacle is not None:
            groups.setdefault((one.obstacle.hurdle, one.obstacle.text), []).append(one)
    if not groups:
        return None
    group = min(groups.values(), key=lambda them: (_gravity(them[0]), -len(them)))
    obstacle = _oldest(group)
    parts = [who(group, wanted), *([spell] if (spell := elapsed(obstacle.since, now)) else [])]
    return Waiting(obstacle, REASONS[obstacle.hurdle], f"{obstacle.text} ({', '.join(parts)})")


def unmet(seen: ClusterObservation) -> Obstacle | None:
    """Return what a job that is over was still waiting for; what pods on their way out show is no obstacle."""
    left = gravest(seen.members, seen.about.workers_wanted, 0.0)
    return left.obstacle if left is not None and not left.passing else seen.before


def _gravity(one: Member) -> int:
    return len(_GRAVITY) if one.obstacle is None else _GRAVITY[one.obstacle.hurdle]


def _oldest(group: Sequence[Member]) -> Obstacle:
    known = [one.obstacle for one in group if one.obstacle is not None]
    return min(known, key=lambda one: float("inf") if one.since is None else one.since)


def who(group: Sequence[Member], wanted: int) -> str:
    """Return who waits: `worker 2`, `workers 0, 1 and 3`, `all 8 workers`, `the launcher`."""
    workers = sorted({one.index for one in group if one.role is Role.WORKER})
    names = ["the launcher"] if any(one.role is Role.LAUNCHER for one in group) else []
    if len(workers) == wanted > 1:
        names.append(f"all {wanted} workers")
    elif len(workers) > _NAMED:
        names.append(f"{len(workers)} of {wanted} workers")
    elif workers:
        names.append(f"worker{'s' if len(workers) > 1 else ''} {_and([str(index) for index in workers])}")
    return _and(names)


def _and(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else ""


def elapsed(since: float | None, now: float) -> str:
    """Return for how long, coarsely: `for 40 s`, `for 3 min`, `for 2 h`; "" for a moment."""
    seconds = 0.0 if since is None else now - since
    if seconds < 10:
        return ""
    if seconds < 60:
        return f"for {int(seconds // 10) * 10} s"
    return f"for {int(seconds // 60)} min" if seconds < 7200 else f"for {int(seconds // 3600)} h"


def queued(seen: ClusterObservation) -> tuple[Reason, str]:
    """Return why a queue keeps the job back."""
    queue = seen.queue
    if queue is None:
        return Reason.WAITING, "Waiting for its turn"
    text = queue.text or f"Waiting for queue {queue.name} to process the job"
    ending = any(one.alive for one in seen.members)
    return HOLDS[queue.hold], f"{text}; its pods are still ending" if ending else text
