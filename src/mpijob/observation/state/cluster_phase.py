"""Where a job on a cluster stands, derived from everything that was seen of it; no engine's word is believed.

A TrainJob says nothing about pods that cannot start, names the launcher when a worker died, and reports
success for ranks that all ran on one machine. So its own conditions are one fact among many here: pods
speak about causes, the queue about waiting, the launcher's census about the world. The local engine's
verdict is derived by `phase`; both use the same words.
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
from mpijob.observation.state.phase import PhaseResult, Reason

LASTING = frozenset(
    {Reason.IMAGE_NAME, Reason.IMAGE_NOT_FOUND, Reason.IMAGE_REFUSED, Reason.SETTINGS_MISSING}
    | {Reason.QUOTA_TOO_SMALL, Reason.QUEUE_MISSING, Reason.POLICY_REFUSED, Reason.NOT_RESUMED}
)  # reasons that waiting alone will not mend: an engine may give such a job up
_UNHEARD_SECONDS = 30.0
_SECOND = 1.0  # the cluster's times have no smaller parts


def derive(seen: ClusterObservation, *, now: float) -> PhaseResult:
    """Return where the job stands."""
    if seen.deleting:
        return PhaseResult(Phase.DELETING, Reason.DELETING, "the job is being removed")
    return (
        _given_up(seen)
        or _cancelled(seen)
        or _concluded(seen)
        or _held(seen, now)
        or _refused(seen)
        or _progress(seen, now)
    )


def cause(seen: ClusterObservation) -> Cause | None:
    """Return what ended the job first; a job that is put to rest, or was never ended, has none."""
    return None if seen.suspended and seen.verdict is None else causes.first(seen)


# -- over -----------------------------------------------------------------------------------------
def _given_up(seen: ClusterObservation) -> PhaseResult | None:
    given = seen.given_up
    if given is None or _ended_before(seen, given.time):
        return None
    reason = Reason(given.reason) if given.reason in set(Reason) else Reason.START_REFUSED
    if _alive(seen):
        return PhaseResult(_stage(seen), reason, f"{given.message}; stopping the remaining pods")
    return PhaseResult(Phase.FAILED, reason, given.message)


def _cancelled(seen: ClusterObservation) -> PhaseResult | None:
    if seen.cancelled_at is None or _ended_before(seen, seen.cancelled_at):
        return None
    if _alive(seen):
        return PhaseResult(_stage(seen), Reason.CANCELLING, "the job is being cancelled")
    return PhaseResult(Phase.CANCELLED, Reason.CANCELLED, "the job was cancelled")


def _ended_before(seen: ClusterObservation, time: float) -> bool:
    """Whether the job was over when somebody wanted to end it; an end in that very second followed from it."""
    return seen.verdict is not None and seen.verdict.time + _SECOND <= time


def _alive(seen: ClusterObservation) -> bool:
    return any(one.alive for one in seen.members)


def _stage(seen: ClusterObservation) -> Phase:
    launcher = seen.launcher
    started = launcher is not None if seen.launched else any(one.started for one in seen.members)
    return Phase.RUNNING if started else Phase.PENDING


def _concluded(seen: ClusterObservation) -> PhaseResult | None:
    """The job is over: its engine says so or, of a job of ours, its pods do, because nothing tries it again."""
    first = cause(seen)
    if seen.census.wrong_world and (seen.verdict is not None or first is not None):
        return PhaseResult(Phase.FAILED, Reason.WRONG_WORLD, seen.census.wrong_world)
    if seen.verdict is not None:
        return _succeeded(seen, first) if seen.verdict.good else _failed(seen, first)
    if not seen.ours or seen.suspended:
        return None
    if first is not None:
        return PhaseResult(Phase.FAILED, first.reason, first.message)
    launcher = seen.launcher
    ended = launcher is not None and launcher.exit is not None and launcher.exit.good
    return _succeeded(seen, None) if ended else None


def _succeeded(seen: ClusterObservation, first: Cause | None) -> PhaseResult:
    if seen.census.wrong:
        return PhaseResult(Phase.FAILED, Reason.WORLD_DIFFERS, seen.census.wrong)
    rank = causes.first_rank(seen.census)
    if seen.ours and first is not None:
        return PhaseResult(Phase.FAILED, first.reason, first.message)
    if rank is not None:
        return PhaseResult(Phase.FAILED, Reason.RANK_FAILED, f"{causes.called(rank)} {rank}")
    if seen.counted and seen.census.proved is None and not seen.guarded:
        message = "the launcher exited with 0, but its ranks were never counted"
        return PhaseResult(Phase.FAILED, Reason.WORLD_UNPROVED, message)
    done = "launcher exit code 0" if seen.launched else "it succeeded"
    return PhaseResult(Phase.SUCCEEDED, Reason.COMPLETED, f"{done}: {_ranks(seen)}")


def _failed(seen: ClusterObservation, first: Cause | None) -> PhaseResult:
    verdict = seen.verdict
    assert verdict is not None
    if seen.census.wrong:
        return PhaseResult(Phase.FAILED, Reason.WORLD_DIFFERS, seen.census.wrong)
    if first is not None:
        return PhaseResult(Phase.FAILED, first.reason, first.message)
    if verdict.late:
        return PhaseResult(Phase.FAILED, Reason.DEADLINE_EXCEEDED, _too_late(seen))
    if verdict.reason == "TrainingRuntimeNotSupported":
        return PhaseResult(Phase.FAILED, Reason.REFUSED, verdict.message)
    message = f"{verdict.message or verdict.reason}; its pods are deleted, so the first cause is unknown"
    return PhaseResult(Phase.FAILED, Reason.LAUNCHER_UNACCOUNTED, f"its controller reports: {message}")


def _too_late(seen: ClusterObservation) -> str:
    limit = (
        "its deadline" if seen.deadline_seconds is None else f"its deadline of {seen.deadline_seconds:g} s"
    )
    obstacle = waiting.unmet(seen)
    if obstacle is None:
        return f"the job ran past {limit}"
    return f"the job had not started at {limit}: {obstacle.text}"


# -- held back ------------------------------------------------------------------------------------
def _held(seen: ClusterObservation, now: float) -> PhaseResult | None:
    queue = seen.queue
    if seen.suspended and seen.suspended_at is not None:
        return _resting(seen, Reason.SUSPENDED, "suspended; resources released")
    if seen.suspended and seen.after:
        return PhaseResult(Phase.QUEUED, Reason.WAITING_FOR_JOBS, dependencies.sentence(seen.after))
    if queue is None:
        return _resting(seen, Reason.SUSPENDED, "the job is suspended") if seen.suspended else None
    if queue.admitted:
        return _not_resumed(seen, now) if seen.suspended else None
    if queue.hold is WaitKind.DEACTIVATED:
        return _resting(seen, Reason.DEACTIVATED, f"the job is suspended: {queue.text}")
    if queue.hold is WaitKind.UNHEARD and not seen.suspended:
        return None  # nobody holds it back: there is no Kueue here, or its workload may not be read
    return PhaseResult(Phase.QUEUED, *waiting.queued(seen))


def _resting(seen: ClusterObservation, reason: Reason, message: str) -> PhaseResult:
    if _alive(seen):
        return PhaseResult(_stage(seen), Reason.SUSPENDING, "the job is being suspended")
    return PhaseResult(Phase.SUSPENDED, reason, message)


def _not_resumed(seen: ClusterObservation, now: float) -> PhaseResult:
    """Admitted, and still suspended: for a moment that is usual, for ever it is a pair of versions that differ."""
    queue = seen.queue
    assert queue is not None
    waited = now - (queue.admitted_at if queue.admitted_at is not None else now)
    if waited < _UNHEARD_SECONDS:
        return PhaseResult(Phase.PENDING, Reason.MAKING, f"admitted by queue {queue.name}, about to start")
    spell = waiting.elapsed(queue.admitted_at, now)
    text = f"Queue {queue.name} admitted the job, and it is still suspended ({spell})"
    return PhaseResult(Phase.PENDING, Reason.NOT_RESUMED, text)


def _refused(seen: ClusterObservation) -> PhaseResult | None:
    no = seen.refusal
    if no is None or seen.shown in (Phase.RUNNING, Phase.INITIALIZING) or not _lacks_pods(seen):
        return None
    if no.final and not seen.members:
        return PhaseResult(Phase.FAILED, Reason.REFUSED, f"its controller refused the job: {no.text}")
    reason = waiting.REFUSALS[no.kind]
    return PhaseResult(Phase.PENDING, reason, f"the job's pods cannot be created: {no.text}")


def _lacks_pods(seen: ClusterObservation) -> bool:
    if len(seen.workers) < seen.about.workers_wanted:
        return True
    newest = max((one.created or 0.0 for one in seen.workers), default=0.0)
    refused = seen.refusal.time if seen.refusal is not None else 0.0
    return seen.launched and seen.launcher is None and refused >= newest


# -- on its way -----------------------------------------------------------------------------------
def _progress(seen: ClusterObservation, now: float) -> PhaseResult:
    if not seen.members:
        return _unseen(seen, now)
    if silent := [one for one in seen.members if one.machine_silent]:
        return _silent(seen, silent)
    if _runs(seen):
        return _running(seen)
    wanted = seen.about.workers_wanted
    wait = waiting.gravest(seen.members, wanted, now)
    if wait is not None and not (wait.passing and _workers_ready(seen)):
        return PhaseResult(Phase.PENDING, wait.reason, wait.text)
    made = len(seen.workers)
    if made < wanted and seen.whole:
        return PhaseResult(Phase.PENDING, Reason.MAKING, f"{made}/{wanted} workers created")
    return _initializing(seen, wait, now)


def _runs(seen: ClusterObservation) -> bool:
    if not seen.launched:
        return bool(seen.workers) and all(one.started is not None for one in seen.workers)
    launcher = seen.launcher
    if launcher is None or launcher.started is None:
        return False
    if seen.counted and not seen.census.read:
        return launcher.stage is not Stage.STARTED  # nobody has looked whether its world is proved
    return not seen.counted or seen.census.proved is not None or seen.census.begun


def _workers_ready(seen: ClusterObservation) -> bool:
    return len(_ready(seen)) >= seen.about.workers_wanted


def _ready(seen: ClusterObservation) -> list[Member]:
    return [one for one in seen.workers if one.stage is Stage.READY]


def _unseen(seen: ClusterObservation, now: float) -> PhaseResult:
    """No pod to be seen: there is none yet, or they may not be read; then the engine's own counts speak."""
    if seen.shown is Phase.RUNNING:
        return PhaseResult(
            Phase.RUNNING, Reason.RUNNING, f"its controller reports it as running: {_ranks(seen)}"
        )
    if seen.shown is Phase.INITIALIZING:
        return PhaseResult(Phase.INITIALIZING, Reason.STARTING, "its workers are ready, the launcher starts")
    spell = waiting.elapsed(seen.about.created or None, now)
    if seen.shown is None and spell:
        text = f"Waiting for {seen.about.engine} to process the job ({spell})"
        return PhaseResult(Phase.PENDING, Reason.MAKING, text)
    return PhaseResult(Phase.PENDING, Reason.MAKING, "the job's pods are being created")


def _initializing(seen: ClusterObservation, wait: waiting.Waiting | None, now: float) -> PhaseResult:
    ready, wanted = len(_ready(seen)), seen.about.workers_wanted
    so_far = f"{ready}/{wanted} workers ready"
    if not seen.launched:
        return PhaseResult(Phase.INITIALIZING, Reason.STARTING, so_far)
    if ready < wanted:
        late = [one for one in seen.workers if one.stage is Stage.STARTED]
        rest = f", waiting for the ssh server of {waiting.who(late, wanted)}" if late else ""
        return PhaseResult(Phase.INITIALIZING, Reason.STARTING, so_far + rest)
    if wait is not None:
        return PhaseResult(Phase.INITIALIZING, Reason.STARTING, f"{so_far}; {wait.text}")
    newest = max((one.created or now for one in seen.workers), default=now)
    if seen.launcher is None and seen.resuming and now - newest > _UNHEARD_SECONDS:
        text = f"{so_far}; the job was resumed, and {seen.about.engine} does not start its launcher"
        return PhaseResult(Phase.PENDING, Reason.NOT_RESUMED, text)
    if seen.launcher is None:
        return PhaseResult(Phase.INITIALIZING, Reason.STARTING, f"{so_far}, the launcher is being created")
    text = f"{so_far}; the launcher waits for their DNS names and counts the ranks"
    return PhaseResult(Phase.INITIALIZING, Reason.PROVING, text)


def _silent(seen: ClusterObservation, silent: list[Member]) -> PhaseResult:
    """A node that does not answer may come back; after some minutes the cluster gives its pods up."""
    nodes = ", ".join(sorted({one.node for one in silent}))
    text = f"{waiting.who(silent, seen.about.workers_wanted)}: node {nodes} does not answer"
    return PhaseResult(Phase.RUNNING if _runs(seen) else Phase.INITIALIZING, Reason.WORKER_LOST, text)


def _running(seen: ClusterObservation) -> PhaseResult:
    first, again = cause(seen), [one for one in seen.members if _restarts(one)]
    if again:
        wait = waiting.gravest(again, seen.about.workers_wanted, 0.0)
        return PhaseResult(Phase.RUNNING, Reason.RETRYING, wait.text if wait is not None else "")
    if first is not None:
        text = f"{first.message}; its controller decides whether to retry it"
        return PhaseResult(Phase.RUNNING, Reason.RETRYING, text)
    return PhaseResult(Phase.RUNNING, Reason.RUNNING, _ranks(seen) if seen.fewest is None else _elastic(seen))


def _elastic(seen: ClusterObservation) -> str:
    """How many workers an elastic job has: it is the only thing that is known of its world."""
    ready, wanted, fewest = len(_ready(seen)), seen.about.workers_wanted, seen.fewest
    assert fewest is not None
    few = "" if ready >= fewest else ", too few to go on: waiting for others"
    return f"{ready} of {wanted} workers ready, at least {fewest}{few}"


def _restarts(one: Member) -> bool:
    return one.obstacle is not None and one.obstacle.hurdle is StartupProblem.RESTARTING


def _ranks(seen: ClusterObservation) -> str:
    return ranks_on(seen.about.world, seen.about.workers_wanted)
