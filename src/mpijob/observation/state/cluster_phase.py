"""Derives the phase of a job on a cluster from everything that was read about it.

A TrainJob reports nothing about pods that cannot start, names the launcher when a worker failed, and reports
success for ranks that all ran on one machine. So its conditions are one fact among others: pods show causes,
the queue shows why a job waits, and the launcher's census shows the MPI world. `phase` derives the local
engine's phase, with the same reasons.
"""

from __future__ import annotations

from mpijob.model import Phase
from mpijob.model.platform.cluster_observation import (
    ClusterObservation,
    Member,
    Stage,
    StartupProblem,
    WaitKind,
)
from mpijob.model.spec import dependencies
from mpijob.model.spec.quantity import ranks_on
from mpijob.observation.state import first_cause as causes
from mpijob.observation.state import waiting_reason as waiting
from mpijob.observation.state.first_cause import Cause
from mpijob.observation.state.phase import PhaseResult, Reason, deadline_text

# Reasons that waiting alone does not resolve: an engine may end such a job.
LASTING = frozenset(
    {Reason.IMAGE_NAME, Reason.IMAGE_NOT_FOUND, Reason.IMAGE_REFUSED, Reason.SETTINGS_MISSING}
    | {Reason.QUOTA_TOO_SMALL, Reason.QUEUE_MISSING, Reason.POLICY_REFUSED, Reason.NOT_RESUMED}
)
# A controller that has not reacted for so long does not work, or has an incompatible version.
_CONTROLLER_SECONDS = 30.0
# The resolution of times in Kubernetes objects.
_SECOND = 1.0


def derive(job: ClusterObservation, *, now: float) -> PhaseResult:
    if job.deleting:
        return PhaseResult(Phase.DELETING, Reason.DELETING, "the job is being removed")
    # In the order of precedence: a recorded end before what the queue, refusals and pods show.
    return (
        _ended_early(job)
        or _cancelled(job)
        or _ended(job)
        or _held_back(job, now)
        or _refused(job)
        or _progress(job, now)
    )


def cause(job: ClusterObservation) -> Cause | None:
    """Return what ended the job first; None for a job that is suspended or has not ended."""
    return None if job.suspended and job.verdict is None else causes.first(job)


# -- over -----------------------------------------------------------------------------------------
def _ended_early(job: ClusterObservation) -> PhaseResult | None:
    ended_early = job.given_up
    if ended_early is None or _ended_before(job, ended_early.time):
        return None
    reason = Reason(ended_early.reason) if ended_early.reason in set(Reason) else Reason.START_REFUSED
    if _has_live_pods(job):
        return PhaseResult(_stage(job), reason, f"{ended_early.message}; stopping the remaining pods")
    return PhaseResult(Phase.FAILED, reason, ended_early.message)


def _cancelled(job: ClusterObservation) -> PhaseResult | None:
    if job.cancelled_at is None or _ended_before(job, job.cancelled_at):
        return None
    if _has_live_pods(job):
        return PhaseResult(_stage(job), Reason.CANCELLING, "the job is being cancelled")
    return PhaseResult(Phase.CANCELLED, Reason.CANCELLED, "the job was cancelled")


def _ended_before(job: ClusterObservation, time: float) -> bool:
    # An end in the same second followed from the request.
    return job.verdict is not None and job.verdict.time + _SECOND <= time


def _has_live_pods(job: ClusterObservation) -> bool:
    return any(member.alive for member in job.members)


def _stage(job: ClusterObservation) -> Phase:
    launcher = job.launcher
    started = launcher is not None if job.launched else any(member.started for member in job.members)
    return Phase.RUNNING if started else Phase.PENDING


def _ended(job: ClusterObservation) -> PhaseResult | None:
    first = cause(job)
    if job.census.wrong_world and (job.verdict is not None or first is not None):
        return PhaseResult(Phase.FAILED, Reason.WRONG_WORLD, job.census.wrong_world)
    if job.verdict is not None:
        return _succeeded(job, first) if job.verdict.good else _failed(job, first)
    # Without a verdict only pods of our own jobs decide, because nothing restarts those.
    if not job.ours or job.suspended:
        return None
    if first is not None:
        return PhaseResult(Phase.FAILED, first.reason, first.message)
    launcher = job.launcher
    ended = launcher is not None and launcher.exit is not None and launcher.exit.good
    return _succeeded(job, None) if ended else None


def _succeeded(job: ClusterObservation, first: Cause | None) -> PhaseResult:
    if job.census.wrong:
        return PhaseResult(Phase.FAILED, Reason.WORLD_DIFFERS, job.census.wrong)
    rank = causes.first_rank(job.census)
    if job.ours and first is not None:
        return PhaseResult(Phase.FAILED, first.reason, first.message)
    if rank is not None:
        return PhaseResult(Phase.FAILED, Reason.RANK_FAILED, f"{causes.rank_name(rank)} {rank}")
    # mpirun exits with 0 even if each rank was a world of its own, or all ran on the launcher.
    if job.counted and job.census.proved is None and not job.guarded:
        message = "the launcher exited with 0, but its ranks were never counted"
        return PhaseResult(Phase.FAILED, Reason.WORLD_UNPROVED, message)
    done = "launcher exit code 0" if job.launched else "it succeeded"
    return PhaseResult(Phase.SUCCEEDED, Reason.COMPLETED, f"{done}: {_ranks_text(job)}")


def _failed(job: ClusterObservation, first: Cause | None) -> PhaseResult:
    verdict = job.verdict
    assert verdict is not None
    if job.census.wrong:
        return PhaseResult(Phase.FAILED, Reason.WORLD_DIFFERS, job.census.wrong)
    if first is not None:
        return PhaseResult(Phase.FAILED, first.reason, first.message)
    if verdict.late:
        return PhaseResult(Phase.FAILED, Reason.DEADLINE_EXCEEDED, _deadline_message(job))
    if verdict.reason == "TrainingRuntimeNotSupported":
        return PhaseResult(Phase.FAILED, Reason.REFUSED, verdict.message)
    message = f"{verdict.message or verdict.reason}; its pods are deleted, so the first cause is unknown"
    return PhaseResult(Phase.FAILED, Reason.LAUNCHER_UNACCOUNTED, f"its controller reports: {message}")


def _deadline_message(job: ClusterObservation) -> str:
    limit = deadline_text(job.deadline_seconds)
    obstacle = waiting.last_obstacle(job)
    if obstacle is None:
        return f"the job ran past {limit}"
    return f"the job had not started at {limit}: {obstacle.text}"


# -- held back ------------------------------------------------------------------------------------
def _held_back(job: ClusterObservation, now: float) -> PhaseResult | None:
    queue = job.queue
    if job.suspended and job.suspended_at is not None:
        return _suspended(job, Reason.SUSPENDED, "suspended; resources released")
    if job.suspended and job.after:
        return PhaseResult(Phase.QUEUED, Reason.WAITING_FOR_JOBS, dependencies.sentence(job.after))
    if queue is None:
        return _suspended(job, Reason.SUSPENDED, "the job is suspended") if job.suspended else None
    if queue.admitted:
        return _not_resumed(job, now) if job.suspended else None
    if queue.hold is WaitKind.DEACTIVATED:
        return _suspended(job, Reason.DEACTIVATED, f"the job is suspended: {queue.text}")
    if queue.hold is WaitKind.UNHEARD and not job.suspended:
        # Nothing holds it back: Kueue is not installed, or its Workload may not be read.
        return None
    return PhaseResult(Phase.QUEUED, *waiting.queue_reason(job))


def _suspended(job: ClusterObservation, reason: Reason, message: str) -> PhaseResult:
    if _has_live_pods(job):
        return PhaseResult(_stage(job), Reason.SUSPENDING, "the job is being suspended")
    return PhaseResult(Phase.SUSPENDED, reason, message)


def _not_resumed(job: ClusterObservation, now: float) -> PhaseResult:
    queue = job.queue
    assert queue is not None
    # For a moment that is normal. If it lasts, Kueue and Trainer have incompatible versions (kueue#11931).
    waited = now - (queue.admitted_at if queue.admitted_at is not None else now)
    if waited < _CONTROLLER_SECONDS:
        return PhaseResult(Phase.PENDING, Reason.MAKING, f"admitted by queue {queue.name}, about to start")
    duration = waiting.elapsed(queue.admitted_at, now)
    text = f"Queue {queue.name} admitted the job, and it is still suspended ({duration})"
    return PhaseResult(Phase.PENDING, Reason.NOT_RESUMED, text)


def _refused(job: ClusterObservation) -> PhaseResult | None:
    refusal = job.refusal
    if refusal is None or job.shown in (Phase.RUNNING, Phase.INITIALIZING) or not _lacks_pods(job):
        return None
    if refusal.final and not job.members:
        return PhaseResult(Phase.FAILED, Reason.REFUSED, f"its controller refused the job: {refusal.text}")
    reason = waiting.REFUSALS[refusal.kind]
    return PhaseResult(Phase.PENDING, reason, f"the job's pods cannot be created: {refusal.text}")


def _lacks_pods(job: ClusterObservation) -> bool:
    if len(job.workers) < job.about.workers_wanted:
        return True
    newest = max((member.created or 0.0 for member in job.workers), default=0.0)
    refused = job.refusal.time if job.refusal is not None else 0.0
    return job.launched and job.launcher is None and refused >= newest


# -- on its way -----------------------------------------------------------------------------------
def _progress(job: ClusterObservation, now: float) -> PhaseResult:
    if not job.members:
        return _without_pods(job, now)
    if silent := [member for member in job.members if member.machine_silent]:
        return _with_silent_nodes(job, silent)
    if _is_running(job):
        return _running(job)
    wanted = job.about.workers_wanted
    wait = waiting.most_serious(job.members, wanted, now)
    if wait is not None and not (wait.passing and _workers_ready(job)):
        return PhaseResult(Phase.PENDING, wait.reason, wait.text)
    created = len(job.workers)
    if created < wanted and job.whole:
        return PhaseResult(Phase.PENDING, Reason.MAKING, f"{created}/{wanted} workers created")
    return _initializing(job, wait, now)


def _is_running(job: ClusterObservation) -> bool:
    if not job.launched:
        return bool(job.workers) and all(member.started is not None for member in job.workers)
    launcher = job.launcher
    if launcher is None or launcher.started is None:
        return False
    if job.counted and not job.census.read:
        # The launcher's log was not read, so the census is unknown; ready then means running.
        return launcher.stage is not Stage.STARTED
    return not job.counted or job.census.proved is not None or job.census.begun


def _workers_ready(job: ClusterObservation) -> bool:
    return len(_ready(job)) >= job.about.workers_wanted


def _ready(job: ClusterObservation) -> list[Member]:
    return [member for member in job.workers if member.stage is Stage.READY]


def _without_pods(job: ClusterObservation, now: float) -> PhaseResult:
    # The pods do not exist yet or may not be read; then the engine's own counts decide.
    if job.shown is Phase.RUNNING:
        return PhaseResult(
            Phase.RUNNING, Reason.RUNNING, f"its controller reports it as running: {_ranks_text(job)}"
        )
    if job.shown is Phase.INITIALIZING:
        return PhaseResult(Phase.INITIALIZING, Reason.STARTING, "its workers are ready, the launcher starts")
    duration = waiting.elapsed(job.about.created or None, now)
    if job.shown is None and duration:
        text = f"Waiting for {job.about.engine} to process the job ({duration})"
        return PhaseResult(Phase.PENDING, Reason.MAKING, text)
    return PhaseResult(Phase.PENDING, Reason.MAKING, "the job's pods are being created")


def _initializing(job: ClusterObservation, wait: waiting.Waiting | None, now: float) -> PhaseResult:
    ready, wanted = len(_ready(job)), job.about.workers_wanted
    so_far = f"{ready}/{wanted} workers ready"
    if not job.launched:
        return PhaseResult(Phase.INITIALIZING, Reason.STARTING, so_far)
    if ready < wanted:
        late = [member for member in job.workers if member.stage is Stage.STARTED]
        rest = f", waiting for the ssh server of {waiting.member_names(late, wanted)}" if late else ""
        return PhaseResult(Phase.INITIALIZING, Reason.STARTING, so_far + rest)
    if wait is not None:
        return PhaseResult(Phase.INITIALIZING, Reason.STARTING, f"{so_far}; {wait.text}")
    newest = max((member.created or now for member in job.workers), default=now)
    if job.launcher is None and job.resuming and now - newest > _CONTROLLER_SECONDS:
        text = f"{so_far}; the job was resumed, and {job.about.engine} does not start its launcher"
        return PhaseResult(Phase.PENDING, Reason.NOT_RESUMED, text)
    if job.launcher is None:
        return PhaseResult(Phase.INITIALIZING, Reason.STARTING, f"{so_far}, the launcher is being created")
    text = f"{so_far}; the launcher waits for their DNS names and counts the ranks"
    return PhaseResult(Phase.INITIALIZING, Reason.PROVING, text)


def _with_silent_nodes(job: ClusterObservation, silent: list[Member]) -> PhaseResult:
    # No failure yet: the node may return. After some minutes the cluster deletes its pods, which then is one.
    nodes = ", ".join(sorted({member.node for member in silent}))
    text = f"{waiting.member_names(silent, job.about.workers_wanted)}: node {nodes} does not answer"
    return PhaseResult(Phase.RUNNING if _is_running(job) else Phase.INITIALIZING, Reason.WORKER_LOST, text)


def _running(job: ClusterObservation) -> PhaseResult:
    first, restarting = cause(job), [member for member in job.members if _is_restarting(member)]
    if restarting:
        wait = waiting.most_serious(restarting, job.about.workers_wanted, 0.0)
        return PhaseResult(Phase.RUNNING, Reason.RETRYING, wait.text if wait is not None else "")
    if first is not None:
        text = f"{first.message}; its controller decides whether to retry it"
        return PhaseResult(Phase.RUNNING, Reason.RETRYING, text)
    return PhaseResult(
        Phase.RUNNING, Reason.RUNNING, _ranks_text(job) if job.fewest is None else _elastic_text(job)
    )


def _elastic_text(job: ClusterObservation) -> str:
    ready, wanted, fewest = len(_ready(job)), job.about.workers_wanted, job.fewest
    assert fewest is not None
    few = "" if ready >= fewest else ", too few to go on: waiting for others"
    return f"{ready} of {wanted} workers ready, at least {fewest}{few}"


def _is_restarting(member: Member) -> bool:
    return member.obstacle is not None and member.obstacle.hurdle is StartupProblem.RESTARTING


def _ranks_text(job: ClusterObservation) -> str:
    return ranks_on(job.about.world, job.about.workers_wanted)
