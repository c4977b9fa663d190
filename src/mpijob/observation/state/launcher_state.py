"""The launcher of a job on a cluster, as people are shown it: how far it has come, and what happened to it.

Whether it is ready is its own word: it says in its log when it has found every worker, and when all ranks are counted.
A launcher that runs another text than ours says neither, and is ready when its container runs. `worker_states` is
the neighbour for workers.
"""

from __future__ import annotations

from mpijob.model import LauncherPhase, LauncherState, Phase, Role
from mpijob.model.platform.cluster_observation import ClusterObservation, Member, Stage
from mpijob.observation.state import first_cause as causes
from mpijob.observation.state import waiting_reason as waiting
from mpijob.observation.state.first_cause import Cause
from mpijob.observation.state.phase import PhaseResult, Reason

_RESTING = (Phase.QUEUED, Phase.SUSPENDED)


def state(seen: ClusterObservation, standing: PhaseResult, cause: Cause | None) -> LauncherState | None:
    """Return the launcher's state; None where no launcher starts the ranks, or none is wanted now."""
    if not seen.launched or (standing.phase in _RESTING and not any(one.alive for one in seen.members)):
        return None
    launcher = seen.launcher
    return _absent(seen, standing, cause) if launcher is None else _seen(seen, launcher, standing, cause)


def _seen(seen: ClusterObservation, one: Member, standing: PhaseResult, cause: Cause | None) -> LauncherState:
    ended = one.stage is Stage.ENDED
    phase = _end(one, standing, cause) if ended else _living(seen, one)
    reason, message = _why(seen, one, phase, cause)
    ready, running = _times(seen, one)
    return LauncherState(
        name=one.name,
        phase=phase,
        node=one.node,
        reason=reason,
        message=message,
        exit_code=one.exit.status if one.exit is not None else None,
        restarts=one.restarts,
        cores=one.cores,
        memory_limit_bytes=one.memory_limit_bytes,
        gpus=tuple(str(device) for device in range(one.gpus)),
        log_source=f"pod/{one.name}/{one.container}" if one.container else f"pod/{one.name}",
        scheduled=one.placed if one.stage is not Stage.WAITING else None,
        started=one.started,
        ready=ready,
        running=running,
        finished=one.exit.time or None if one.exit is not None else None,
    )


def _living(seen: ClusterObservation, one: Member) -> LauncherPhase:
    if one.stage is Stage.WAITING:
        return LauncherPhase.PENDING
    if one.stage is Stage.PREPARING:
        return LauncherPhase.SCHEDULED
    if not seen.counted:
        return LauncherPhase.RUNNING
    if not seen.census.read:  # nobody has asked the launcher: the kubelet's word has to do
        return LauncherPhase.STARTING if one.stage is Stage.STARTED else LauncherPhase.RUNNING
    if seen.census.proved is not None or seen.census.begun:
        return LauncherPhase.RUNNING
    return LauncherPhase.STARTING if seen.census.ready is None else LauncherPhase.READY


def _end(one: Member, standing: PhaseResult, cause: Cause | None) -> LauncherPhase:
    if _blamed(cause):
        return LauncherPhase.FAILED
    if standing.phase is Phase.CANCELLED:
        return LauncherPhase.CANCELLED
    if one.exit is not None and one.exit.good:
        return LauncherPhase.SUCCEEDED
    if one.exit is not None and one.exit.status is not None and one.asked_to_end is None:
        return LauncherPhase.FAILED
    return LauncherPhase.SUCCEEDED if standing.phase is Phase.SUCCEEDED else LauncherPhase.CANCELLED


def _blamed(cause: Cause | None) -> bool:
    launcher = cause is not None and cause.member is not None and cause.member.role is Role.LAUNCHER
    return launcher and cause is not None and cause.worker is None


def _why(seen: ClusterObservation, one: Member, phase: LauncherPhase, cause: Cause | None) -> tuple[str, str]:
    if one.obstacle is not None and phase in (LauncherPhase.PENDING, LauncherPhase.SCHEDULED):
        return waiting.REASONS[one.obstacle.hurdle].value, one.obstacle.text
    if phase is LauncherPhase.FAILED:
        found = cause if cause is not None and _blamed(cause) else causes.of(one, 0.0, ours=seen.ours)
        return found.reason.value, found.message
    if one.machine_silent:
        return "MachineSilent", f"node {one.node} does not answer"
    return "", ""


def _times(seen: ClusterObservation, one: Member) -> tuple[float | None, float | None]:
    """Return when it was ready, and when the job's command began."""
    if not seen.counted:
        return one.started, one.started
    return seen.census.ready or seen.census.time, seen.census.time


def _absent(seen: ClusterObservation, standing: PhaseResult, cause: Cause | None) -> LauncherState:
    """Return a launcher that has no pod: not made yet, cleared away, lost, or not to be seen."""
    name = f"{seen.about.ref.name}-launcher"
    if _blamed(cause):
        assert cause is not None
        return LauncherState(
            name=name, phase=LauncherPhase.FAILED, reason=cause.reason.value, message=cause.message
        )
    if standing.phase.final or standing.phase is Phase.DELETING:
        good = standing.phase is Phase.SUCCEEDED
        return LauncherState(name=name, phase=LauncherPhase.SUCCEEDED if good else LauncherPhase.CANCELLED)
    if standing.phase is Phase.RUNNING and not seen.members:
        return LauncherState(name=name, phase=LauncherPhase.RUNNING)
    ready = sum(one.stage is Stage.READY for one in seen.workers)
    message = f"{ready} of {seen.about.workers_wanted} workers are ready"
    return LauncherState(name=name, phase=LauncherPhase.PENDING, reason=Reason.MAKING.value, message=message)
