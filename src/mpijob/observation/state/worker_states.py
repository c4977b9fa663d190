"""Each worker of a job on a cluster, as people are shown it: its own phase, and what happened to it.

Pods are cleared away when a job ends, so a worker without a pod is told by what became of the job.
"""

from __future__ import annotations

from collections.abc import Iterator

from mpijob.model import Phase, WorkerState
from mpijob.model.platform.cluster_observation import MAX_WORKERS, ClusterObservation, Member, Stage
from mpijob.observation.state import first_cause as causes
from mpijob.observation.state import waiting_reason as waiting
from mpijob.observation.state.first_cause import Cause
from mpijob.observation.state.phase import PhaseResult

_UNMADE = (Phase.QUEUED, Phase.SUSPENDED, Phase.CANCELLED)


def states(seen: ClusterObservation, standing: PhaseResult, cause: Cause | None) -> tuple[WorkerState, ...]:
    """Return every worker that there is or should be, by its number."""
    resting = standing.phase in (Phase.QUEUED, Phase.SUSPENDED) and not any(one.alive for one in seen.members)
    there = {} if resting else {one.index: one for one in seen.workers}
    found = {index: _state(seen, one, standing, cause) for index, one in there.items()}
    if there or standing.phase not in _UNMADE:
        found |= {one.index: one for one in _absent(seen, standing, cause) if one.index not in found}
    return tuple(found[index] for index in sorted(found))


def _state(seen: ClusterObservation, one: Member, standing: PhaseResult, cause: Cause | None) -> WorkerState:
    ended = one.stage is Stage.ENDED or standing.phase.final
    phase = _ended(one, standing, cause) if ended else _LIVING[one.stage]
    reason, message = _why(seen, one, phase, cause)
    return WorkerState(
        index=one.index,
        name=one.name,
        phase=phase,
        node=one.node,
        group=seen.group_of(one.index),
        reason=reason,
        message=message,
        exit_code=one.exit.status if one.exit is not None else None,
        restarts=one.restarts,
        gpus=tuple(str(device) for device in range(one.gpus)),
        memory_limit_bytes=one.memory_limit_bytes,
    )


_LIVING = {
    Stage.WAITING: Phase.PENDING,
    Stage.PREPARING: Phase.PENDING,
    Stage.STARTED: Phase.INITIALIZING,
    Stage.READY: Phase.RUNNING,
}


def _ended(one: Member, standing: PhaseResult, cause: Cause | None) -> Phase:
    """A worker whose job is over has ended, or is about to; only the first cause has failed."""
    if cause is not None and cause.worker == one.index:
        return Phase.FAILED
    if standing.phase is Phase.SUCCEEDED:
        return Phase.SUCCEEDED
    if one.exit is not None and one.exit.good:
        return Phase.CANCELLED if standing.phase.final else Phase.SUCCEEDED
    ill = one.exit is not None and one.asked_to_end is None and cause is None
    return Phase.FAILED if ill or not standing.phase.final else Phase.CANCELLED


def _why(seen: ClusterObservation, one: Member, phase: Phase, cause: Cause | None) -> tuple[str, str]:
    if one.obstacle is not None and phase is Phase.PENDING:
        return waiting.REASONS[one.obstacle.hurdle].value, one.obstacle.text
    if phase is Phase.FAILED:
        found = (
            cause if cause is not None and cause.worker == one.index else causes.of(one, 0.0, ours=seen.ours)
        )
        return found.reason.value, found.message
    if one.machine_silent:
        return "MachineSilent", f"node {one.node} does not answer"
    return "", ""


def _absent(seen: ClusterObservation, standing: PhaseResult, cause: Cause | None) -> Iterator[WorkerState]:
    """Yield the workers that have no pod: not made yet, cleared away, or lost."""
    for index in range(min(seen.about.workers_wanted, MAX_WORKERS)):
        name, group = f"{seen.about.ref.name}-worker-{index}", seen.group_of(index)
        phase, reason, message = _of_absent(seen, standing, cause, index)
        yield WorkerState(index, name, phase, group=group, reason=reason, message=message)


def _of_absent(
    seen: ClusterObservation, standing: PhaseResult, cause: Cause | None, index: int
) -> tuple[Phase, str, str]:
    if cause is not None and cause.at == index:
        return Phase.FAILED, cause.reason.value, cause.message
    if standing.phase is Phase.SUCCEEDED:
        return Phase.SUCCEEDED, "", ""
    if standing.phase.final or standing.phase is Phase.DELETING:
        return Phase.CANCELLED, "", ""
    if seen.members or standing.phase is not Phase.RUNNING:
        return Phase.PENDING, "MakingPods", ""
    return standing.phase, "", ""
