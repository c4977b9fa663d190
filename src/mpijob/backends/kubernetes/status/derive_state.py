"""Derives a job's state from all its objects; `summary` does it more cheaply for lists.

Objects are parsed by `status_reader` and the phase is decided by `cluster_phase`; this module combines the
two. All times come from the objects. Why a job failed or does not start is explained by `diagnosis` (through
`evidence`), which is loaded only then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from mpijob.errors import Finding
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.formats.status import job_conditions, status_reader
from mpijob.formats.status.status_reader import Objects
from mpijob.model import Family, JobState, Phase, RankState
from mpijob.model.platform.cluster_observation import ClusterObservation, Stage
from mpijob.observation.state import cluster_phase, launcher_state, worker_states
from mpijob.observation.state.first_cause import Cause, followers, silent_followers
from mpijob.observation.state.phase import PhaseResult, Reason

__all__ = ["LASTING", "POD_SELECTOR", "Objects", "derive", "speech", "summary", "worker_index"]

Document = Mapping[str, Any]
LASTING = cluster_phase.LASTING
# The pods of jobs that mpijob created. In lists, other jobs are shown by their engine's counters.
POD_SELECTOR = well_known.JOB_LABEL
worker_index = job_conditions.worker_index
_WAITS = (Phase.QUEUED, Phase.PENDING, Phase.INITIALIZING)
_EXPLAINED = LASTING | {
    Reason.IMAGE_FAILED,
    Reason.UNSCHEDULABLE,
    Reason.VOLUME_NOT_READY,
    Reason.QUEUE_CLOSED,
    Reason.QUOTA_USED_UP,
    Reason.REFUSED,
    Reason.START_REFUSED,
    Reason.PREEMPTED,
    Reason.REQUEUED,
}
# Lines of launchers that succeeded although ranks did not find each other.
_DOUBTFUL_SIGNS = (
    "suspicious MPI execution",
    "rank 0 of 1",
    "has lost communication with",
    "no-pmix-but",
    "No PMIx server",
)


def speech(job: Document) -> tuple[Family, bool]:
    """Return the MPI family of a job's launcher, and whether its lines are tagged with ranks."""
    # Imported late for a quick start: a list reads no log.
    from mpijob.formats.status import launcher_census

    return launcher_census.speech(job)


def derive(
    objects: Objects,
    *,
    now: float,
    launcher_log: str | None = "",
    logs: Mapping[str, str] | None = None,
    rules: str = "",
) -> JobState:
    """Return the job's state with its findings.

    `launcher_log` has the launcher's lines so far, with or without the kubelet's timestamps; the census is at its
    beginning. None means that it could not be read. `logs` are the workers' logs by pod, `rules` is the path of
    the site's own rules.
    """
    sight = status_reader.read(objects, launcher_log=launcher_log)
    standing, first = cluster_phase.derive(sight, now=now), cluster_phase.cause(sight)
    state = _state(sight, standing, first)
    found = _findings(objects, sight, standing, first, launcher_log or "", logs or {}, rules)
    if not found:
        return state
    if state.phase is not Phase.FAILED:
        return msgspec.structs.replace(state, findings=found)
    workers = worker_states.states(sight, standing, _culprit(first, found[0]))
    # Whatever ended a job early has noted why, with its numbers.
    message = state.message if sight.given_up is not None else found[0].message
    return msgspec.structs.replace(state, findings=found, message=message, workers=workers)


def _culprit(first: Cause | None, finding: Finding) -> Cause | None:
    """Return the first cause with the worker from the diagnosis, if the pods do not name one."""
    if first is None or first.worker is not None or finding.worker is None:
        return first
    return first._replace(at=finding.worker, message=finding.message)


def summary(job: Document, workload: Document | None = None, pods: Sequence[Document] = ()) -> JobState:
    """Return a job's state from the given objects; no log is read and nothing is explained."""
    sight = status_reader.read(Objects(job=job, workload=workload, pods=pods), whole=False)
    standing = cluster_phase.derive(sight, now=0.0)
    state = _state(sight, standing, cluster_phase.cause(sight) if standing.phase is Phase.FAILED else None)
    return msgspec.structs.replace(state, ranks=())


def _findings(
    objects: Objects,
    sight: ClusterObservation,
    standing: PhaseResult,
    first: Cause | None,
    launcher_log: str,
    logs: Mapping[str, str],
    rules: str,
) -> tuple[Finding, ...]:
    failed = standing.phase is Phase.FAILED
    stuck = standing.phase in _WAITS and standing.reason in _EXPLAINED
    doubtful = standing.phase is Phase.SUCCEEDED and any(sign in launcher_log for sign in _DOUBTFUL_SIGNS)
    if not (failed or stuck or doubtful):
        return ()
    from mpijob.backends import site_rule_loader

    # Imported late: loading the rules takes longer than the rest of a command.
    from mpijob.backends.kubernetes.status import evidence

    return evidence.findings(
        objects, sight, standing, first, launcher_log, logs, site_rule_loader.load_if_valid(rules)
    )


def _state(sight: ClusterObservation, standing: PhaseResult, first: Cause | None) -> JobState:
    launcher, queue = sight.launcher, sight.queue
    waits = standing.phase in _WAITS
    started = _started(sight, standing.phase)
    finished = _finished(sight, first) if standing.phase.final else None
    return msgspec.structs.replace(
        sight.about,
        phase=standing.phase,
        reason=standing.reason.value,
        message=standing.message,
        waiting_for=standing.message if waits else "",
        queue_position=queue.position if queue is not None and standing.phase is Phase.QUEUED else None,
        launcher=launcher_state.state(sight, standing, first),
        workers=worker_states.states(sight, standing, first),
        ranks=_ranks(sight, first),
        steps=sight.census.steps,
        launcher_exit_code=launcher.exit.status
        if launcher is not None and launcher.exit is not None
        else None,
        queued=_queued(sight),
        started=started,
        running=_running(sight, standing.phase),
        released=_released(sight, finished),
        finished=finished,
    )


def _queued(sight: ClusterObservation) -> float | None:
    """Return when the attempt was queued last: by its queue, by resuming it, or by its creation."""
    since = sight.queue.since if sight.queue is not None else None
    return max([time for time in (sight.about.queued, since) if time] or [sight.about.created]) or None


def _ranks(sight: ClusterObservation, first: Cause | None) -> tuple[RankState, ...]:
    followed = followers(sight.census) | silent_followers(sight, first)
    return tuple(
        msgspec.structs.replace(rank, followed=True) if rank.rank in followed else rank
        for rank in sight.census.ranks
    )


def _started(sight: ClusterObservation, phase: Phase) -> float | None:
    """Return when the queue admitted the job, else when the first pod was scheduled or the engine started it."""
    if phase in (Phase.QUEUED, Phase.SUSPENDED):
        return None
    if sight.queue is not None and sight.queue.admitted_at is not None:
        # Also where the pods are known, so that a list, which may not know them, has the same time.
        return sight.queue.admitted_at
    placed = [
        member.placed
        for member in sight.members
        if member.stage is not Stage.WAITING and member.placed is not None
    ]
    return min([*placed, *([sight.began] if sight.began is not None else [])], default=None)


def _running(sight: ClusterObservation, phase: Phase) -> float | None:
    """Return when the ranks started: when the world was proved, else when the launcher started."""
    if phase in _WAITS or phase is Phase.SUSPENDED:
        return None
    if sight.counted and sight.census.read and sight.census.proved is None and not sight.census.begun:
        return None
    if not sight.launched:
        begun = [worker.started for worker in sight.workers if worker.started is not None]
        return max(begun) if len(begun) >= sight.about.workers_wanted else None
    return sight.census.time or (sight.launcher.started if sight.launcher is not None else None)


def _released(sight: ClusterObservation, finished: float | None) -> float | None:
    """Return when a job was suspended, if it ended while it was."""
    at = sight.suspended_at
    return at if at is not None and finished is not None and at < finished else None


def _finished(sight: ClusterObservation, first: Cause | None) -> float | None:
    """Return the launcher's end, else the end by the engine, else the time of the first cause."""
    launcher = sight.launcher
    if launcher is not None and launcher.exit is not None and launcher.exit.time:
        return launcher.exit.time
    if sight.verdict is not None and sight.verdict.time:
        return sight.verdict.time
    ends = [member.exit.time for member in sight.members if member.exit is not None]
    noted = [time for time in (sight.cancelled_at, sight.given_up.time if sight.given_up else None) if time]
    if noted:
        return max([*noted, *ends])
    return first.time if first is not None else (sight.refusal.time if sight.refusal is not None else None)
