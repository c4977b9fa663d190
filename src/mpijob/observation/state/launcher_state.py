"""Derives the state of a job's launcher on a cluster for display.

The launcher reports in its log when it has reached every worker and when all ranks are counted, so its
readiness comes from there. A launcher with another script reports neither, and is ready when its container
runs. `worker_states` is the counterpart for workers.
"""

from __future__ import annotations

from typing import TypeGuard

from mpijob.model import LauncherPhase, LauncherState, Phase, Role
from mpijob.model.platform.cluster_observation import ClusterObservation, Member, Stage
from mpijob.observation.state import first_cause as causes
from mpijob.observation.state import waiting_reason as waiting
from mpijob.observation.state.first_cause import Cause
from mpijob.observation.state.phase import PhaseResult, Reason

_WITHOUT_PODS = (Phase.QUEUED, Phase.SUSPENDED)


def state(job: ClusterObservation, result: PhaseResult, cause: Cause | None) -> LauncherState | None:
    """Return the launcher's state; None if no launcher starts the ranks, or none is expected now."""
    if not job.launched or (
        result.phase in _WITHOUT_PODS and not any(member.alive for member in job.members)
    ):
        return None
    launcher = job.launcher
    return _absent(job, result, cause) if launcher is None else _existing(job, launcher, result, cause)


def _existing(
    job: ClusterObservation, member: Member, result: PhaseResult, cause: Cause | None
) -> LauncherState:
    ended = member.stage is Stage.ENDED
    phase = _final_phase(member, result, cause) if ended else _running_phase(job, member)
    reason, message = _reason(job, member, phase, cause)
    ready, running = _times(job, member)
    return LauncherState(
        name=member.name,
        phase=phase,
        node=member.node,
        reason=reason,
        message=message,
        exit_code=member.exit.status if member.exit is not None else None,
        restarts=member.restarts,
        cores=member.cores,
        memory_limit_bytes=member.memory_limit_bytes,
        gpus=tuple(str(device) for device in range(member.gpus)),
        log_source=f"pod/{member.name}/{member.container}" if member.container else f"pod/{member.name}",
        scheduled=member.placed if member.stage is not Stage.WAITING else None,
        started=member.started,
        ready=ready,
        running=running,
        finished=member.exit.time or None if member.exit is not None else None,
    )


def _running_phase(job: ClusterObservation, member: Member) -> LauncherPhase:
    if member.stage is Stage.WAITING:
        return LauncherPhase.PENDING
    if member.stage is Stage.PREPARING:
        return LauncherPhase.SCHEDULED
    if not job.counted:
        return LauncherPhase.RUNNING
    # The log was not read, so the kubelet's status has to do.
    if not job.census.read:
        return LauncherPhase.STARTING if member.stage is Stage.STARTED else LauncherPhase.RUNNING
    if job.census.proved is not None or job.census.begun:
        return LauncherPhase.RUNNING
    return LauncherPhase.STARTING if job.census.ready is None else LauncherPhase.READY


def _final_phase(member: Member, result: PhaseResult, cause: Cause | None) -> LauncherPhase:
    if _is_cause(cause):
        return LauncherPhase.FAILED
    if result.phase is Phase.CANCELLED:
        return LauncherPhase.CANCELLED
    if member.exit is not None and member.exit.good:
        return LauncherPhase.SUCCEEDED
    if member.exit is not None and member.exit.status is not None and member.asked_to_end is None:
        return LauncherPhase.FAILED
    return LauncherPhase.SUCCEEDED if result.phase is Phase.SUCCEEDED else LauncherPhase.CANCELLED


def _is_cause(cause: Cause | None) -> TypeGuard[Cause]:
    if cause is None or cause.member is None:
        return False
    return cause.member.role is Role.LAUNCHER and cause.worker is None


def _reason(
    job: ClusterObservation, member: Member, phase: LauncherPhase, cause: Cause | None
) -> tuple[str, str]:
    if member.obstacle is not None and phase in (LauncherPhase.PENDING, LauncherPhase.SCHEDULED):
        return waiting.REASONS[member.obstacle.hurdle].value, member.obstacle.text
    if phase is LauncherPhase.FAILED:
        found = cause if _is_cause(cause) else causes.cause_of_end(member, 0.0, ours=job.ours)
        return found.reason.value, found.message
    if member.machine_silent:
        return "MachineSilent", f"node {member.node} does not answer"
    return "", ""


def _times(job: ClusterObservation, member: Member) -> tuple[float | None, float | None]:
    """Return when it was ready and when the job's command started."""
    if not job.counted:
        return member.started, member.started
    return job.census.ready or job.census.time, job.census.time


def _absent(job: ClusterObservation, result: PhaseResult, cause: Cause | None) -> LauncherState:
    # Not created yet, removed, lost, or not readable.
    name = f"{job.about.ref.name}-launcher"
    if _is_cause(cause):
        return LauncherState(
            name=name, phase=LauncherPhase.FAILED, reason=cause.reason.value, message=cause.message
        )
    if result.phase.final or result.phase is Phase.DELETING:
        good = result.phase is Phase.SUCCEEDED
        return LauncherState(name=name, phase=LauncherPhase.SUCCEEDED if good else LauncherPhase.CANCELLED)
    if result.phase is Phase.RUNNING and not job.members:
        return LauncherState(name=name, phase=LauncherPhase.RUNNING)
    ready = sum(member.stage is Stage.READY for member in job.workers)
    message = f"{ready} of {job.about.workers_wanted} workers are ready"
    return LauncherState(name=name, phase=LauncherPhase.PENDING, reason=Reason.MAKING.value, message=message)
