"""Derives the state of each worker of a job on a cluster for display.

Pods are removed when a job ends, so a worker without a pod gets its state from the job's outcome.
"""

from __future__ import annotations

from collections.abc import Iterator

from mpijob.model import Phase, WorkerState
from mpijob.model.platform.cluster_observation import MAX_WORKERS, ClusterObservation, Member, Stage
from mpijob.observation.state import first_cause as causes
from mpijob.observation.state import waiting_reason as waiting
from mpijob.observation.state.first_cause import Cause
from mpijob.observation.state.phase import PhaseResult

_WITHOUT_PODS = (Phase.QUEUED, Phase.SUSPENDED, Phase.CANCELLED)


def states(job: ClusterObservation, result: PhaseResult, cause: Cause | None) -> tuple[WorkerState, ...]:
    """Return every worker that exists or should exist, by index."""
    is_inactive = result.phase in (Phase.QUEUED, Phase.SUSPENDED) and not any(
        member.alive for member in job.members
    )
    existing = {} if is_inactive else {member.index: member for member in job.workers}
    found = {index: _state(job, member, result, cause) for index, member in existing.items()}
    if existing or result.phase not in _WITHOUT_PODS:
        found |= {worker.index: worker for worker in _absent(job, result, cause) if worker.index not in found}
    return tuple(found[index] for index in sorted(found))


def _state(job: ClusterObservation, member: Member, result: PhaseResult, cause: Cause | None) -> WorkerState:
    ended = member.stage is Stage.ENDED or result.phase.final
    phase = _final_phase(member, result, cause) if ended else _RUNNING_PHASES[member.stage]
    reason, message = _reason(job, member, phase, cause)
    return WorkerState(
        index=member.index,
        name=member.name,
        phase=phase,
        node=member.node,
        group=job.group_of(member.index),
        reason=reason,
        message=message,
        exit_code=member.exit.status if member.exit is not None else None,
        restarts=member.restarts,
        gpus=tuple(str(device) for device in range(member.gpus)),
        memory_limit_bytes=member.memory_limit_bytes,
    )


_RUNNING_PHASES = {
    Stage.WAITING: Phase.PENDING,
    Stage.PREPARING: Phase.PENDING,
    Stage.STARTED: Phase.INITIALIZING,
    Stage.READY: Phase.RUNNING,
}


def _final_phase(member: Member, result: PhaseResult, cause: Cause | None) -> Phase:
    # A worker of an ended job has ended or is about to. Only the first cause failed; the others were
    # cancelled.
    if cause is not None and cause.worker == member.index:
        return Phase.FAILED
    if result.phase is Phase.SUCCEEDED:
        return Phase.SUCCEEDED
    if member.exit is not None and member.exit.good:
        return Phase.CANCELLED if result.phase.final else Phase.SUCCEEDED
    has_failed = member.exit is not None and member.asked_to_end is None and cause is None
    return Phase.FAILED if has_failed or not result.phase.final else Phase.CANCELLED


def _reason(job: ClusterObservation, member: Member, phase: Phase, cause: Cause | None) -> tuple[str, str]:
    if member.obstacle is not None and phase is Phase.PENDING:
        return waiting.REASONS[member.obstacle.hurdle].value, member.obstacle.text
    if phase is Phase.FAILED:
        found = (
            cause
            if cause is not None and cause.worker == member.index
            else causes.cause_of_end(member, 0.0, ours=job.ours)
        )
        return found.reason.value, found.message
    if member.machine_silent:
        return "MachineSilent", f"node {member.node} does not answer"
    return "", ""


def _absent(job: ClusterObservation, result: PhaseResult, cause: Cause | None) -> Iterator[WorkerState]:
    # Workers without a pod: not created yet, removed, or lost.
    for index in range(min(job.about.workers_wanted, MAX_WORKERS)):
        name, group = f"{job.about.ref.name}-worker-{index}", job.group_of(index)
        phase, reason, message = _of_absent(job, result, cause, index)
        yield WorkerState(index, name, phase, group=group, reason=reason, message=message)


def _of_absent(
    job: ClusterObservation, result: PhaseResult, cause: Cause | None, index: int
) -> tuple[Phase, str, str]:
    if cause is not None and cause.at == index:
        return Phase.FAILED, cause.reason.value, cause.message
    if result.phase is Phase.SUCCEEDED:
        return Phase.SUCCEEDED, "", ""
    if result.phase.final or result.phase is Phase.DELETING:
        return Phase.CANCELLED, "", ""
    if job.members or result.phase is not Phase.RUNNING:
        return Phase.PENDING, "MakingPods", ""
    return result.phase, "", ""
