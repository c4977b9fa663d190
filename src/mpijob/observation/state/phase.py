"""Where a job stands, derived from everything that was observed; nobody's word is believed.

An engine fills an `Observation` with facts (processes, sockets, exit codes; on a cluster pods and
conditions) and asks `derive`. Success needs all of it: launcher 0, every worker 0, every rank 0 and a
world of the planned size, because mpirun returns 0 for lost workers and for a program of another MPI.
Why a job failed in the user's terms is said by `diagnosis`; here is only the verdict.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec

from mpijob.model import Exit, Phase, StepState
from mpijob.model.spec.quantity import ranks_on
from mpijob.model.status.state import script_ended


class Reason(StrEnum):
    """The one-word reasons that states and events carry."""

    WAITING = "WaitingForResources"
    WAITING_FOR_JOBS = "WaitingForJobs"
    DEPENDENCY_FAILED = "DependencyFailed"
    BACKING_OFF = "BackingOff"
    STARTING = "StartingWorkers"
    PROVING = "ProvingWorld"
    RUNNING = "RanksRunning"
    SUSPENDING = "Suspending"
    SUSPENDED = "Suspended"
    CANCELLING = "Cancelling"
    CANCELLED = "Cancelled"
    DELETING = "Deleting"
    COMPLETED = "Completed"
    START_REFUSED = "StartRefused"
    START_TIMEOUT = "StartTimeout"
    SUPERVISOR_LOST = "SupervisorLost"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    MEMORY_EXCEEDED = "MemoryLimitExceeded"
    DISK_FULL = "DiskFull"
    DATA_NOT_FETCHED = "DataNotFetched"
    WORKER_LOST = "WorkerLost"
    WORKER_FAILED = "WorkerFailed"
    RANK_FAILED = "RankFailed"
    RANK_UNACCOUNTED = "RankUnaccounted"
    LAUNCHER_FAILED = "LauncherFailed"
    LAUNCHER_UNACCOUNTED = "LauncherUnaccounted"
    WORLD_DIFFERS = "WorldDiffers"
    WORLD_UNPROVED = "WorldUnproved"
    WRONG_WORLD = "WrongWorld"

    # on a cluster
    QUOTA_TOO_SMALL = "QuotaTooSmall"
    QUEUE_MISSING = "QueueMissing"
    QUEUE_CLOSED = "QueueClosed"
    PREEMPTED = "Preempted"
    REQUEUED = "Requeued"
    DEACTIVATED = "Deactivated"
    NOT_RESUMED = "NotResumed"
    MAKING = "MakingPods"
    REFUSED = "EngineRefused"
    QUOTA_USED_UP = "QuotaUsedUp"
    POLICY_REFUSED = "PolicyRefused"
    UNSCHEDULABLE = "Unschedulable"
    PULLING = "PullingImage"
    IMAGE_NOT_FOUND = "ImageNotFound"
    IMAGE_REFUSED = "ImageRefused"
    IMAGE_FAILED = "ImagePullFailed"
    IMAGE_NAME = "ImageNameInvalid"
    SETTINGS_MISSING = "SettingsMissing"
    VOLUME_NOT_READY = "VolumeNotReady"
    NO_KEY = "NoKey"
    NO_PROGRAM = "NoProgram"
    NO_SSHD = "NoSshServer"
    WORLD_NOT_STARTED = "WorldNotStarted"
    WORKER_EVICTED = "WorkerEvicted"
    WORKER_PREEMPTED = "WorkerPreempted"
    LAUNCHER_LOST = "LauncherLost"
    LAUNCHER_MEMORY = "LauncherMemoryExceeded"
    RETRYING = "Retrying"
    GANG_TIMEOUT = "GangTimeout"

    # on Slurm
    HELD = "Held"
    SLURM_PREEMPTED = "SlurmPreempted"
    SLURM_REQUEUED = "SlurmRequeued"
    TIME_LIMIT = "TimeLimit"
    NODE_FAILED = "NodeFailed"
    NEVER_STARTS = "NeverStarts"
    DIRECTORY_NOT_SHARED = "DirectoryNotShared"
    OUTCOME_UNKNOWN = "OutcomeUnknown"


class Observation(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Everything an engine has seen of one attempt of a job.

    `stopped` (name: reason) is set by the engine when it ended the attempt on purpose, for a cause of
    its own (memory, disk, a refused start). `ended` says that no process of the attempt is left.
    `ranks_watched` is False where single ranks' exits cannot be seen; their absence then proves nothing.
    """

    queued: bool = False
    waiting_for: str = ""
    retry_in_seconds: float | None = None
    supervisor_alive: bool = True

    workers_wanted: int = 0
    workers_ready: int = 0
    workers_lost: tuple[int, ...] = ()
    world_planned: int = 0
    world_proved: int | None = None
    census: bool = True
    launcher_started: bool = False

    launcher: Exit | None = None
    workers: tuple[Exit, ...] = ()
    ranks: tuple[Exit, ...] = ()
    ranks_watched: bool = True
    ended: bool = False

    cancel_requested: bool = False
    suspend_requested: bool = False
    delete_requested: bool = False
    deadline_passed: bool = False
    deadline_seconds: float | None = None
    stopped: Reason | None = None
    stopped_message: str = ""
    script: bool = False
    steps: tuple[StepState, ...] = ()


class PhaseResult(NamedTuple):
    """The phase with its reason and a sentence for people."""

    phase: Phase
    reason: Reason
    message: str


def derive(seen: Observation) -> PhaseResult:
    """Return where the job stands."""
    if seen.delete_requested:
        return PhaseResult(Phase.DELETING, Reason.DELETING, "the job is being removed")
    if seen.ended or seen.queued:
        return _resting(seen)
    if not seen.supervisor_alive:
        return _supervisor_lost()
    return _ending(seen) or _progress(seen)


def failure(seen: Observation) -> PhaseResult | None:
    """Return the first failure among the facts so far; an engine ends the attempt when there is one."""
    if seen.stopped is not None:
        return _failed(seen.stopped, seen.stopped_message or "the job was stopped")
    if seen.deadline_passed:
        return _failed(Reason.DEADLINE_EXCEEDED, _deadline(seen))
    return _lost(seen) or _bad_exit(seen) or _wrong_world(seen)


def _resting(seen: Observation) -> PhaseResult:
    """Nothing runs: it waits, it rests, or it is over."""
    if seen.suspend_requested:
        return PhaseResult(Phase.SUSPENDED, Reason.SUSPENDED, "suspended; resources released")
    if seen.cancel_requested:
        return PhaseResult(Phase.CANCELLED, Reason.CANCELLED, "the job was cancelled")
    if seen.retry_in_seconds is not None:
        waits = f"the next attempt starts in {seen.retry_in_seconds:.0f} s"
        return PhaseResult(Phase.QUEUED, Reason.BACKING_OFF, waits)
    if seen.queued:
        return PhaseResult(Phase.QUEUED, Reason.WAITING, seen.waiting_for or "waiting in the queue")
    if not seen.supervisor_alive and seen.launcher is None and seen.stopped is None:
        return _supervisor_lost()
    if failed := failure(seen) or _unaccounted(seen):
        return failed
    world = _world(seen)
    ended = script_ended(seen.steps) if seen.script else f"all {world} rank{'s' * (world != 1)} ended with 0"
    return PhaseResult(Phase.SUCCEEDED, Reason.COMPLETED, ended)


def _ending(seen: Observation) -> PhaseResult | None:
    """The end was decided, and processes are still going."""
    phase = Phase.RUNNING if seen.launcher_started else Phase.PENDING
    if seen.suspend_requested:
        return PhaseResult(phase, Reason.SUSPENDING, "the job is being suspended")
    if seen.cancel_requested:
        return PhaseResult(phase, Reason.CANCELLING, "the job is being cancelled")
    if failed := failure(seen):
        return PhaseResult(phase, failed.reason, f"{failed.message}; stopping the remaining processes")
    return None


def _progress(seen: Observation) -> PhaseResult:
    ready, wanted = seen.workers_ready, seen.workers_wanted
    if ready < wanted:
        return PhaseResult(Phase.PENDING, Reason.STARTING, f"{ready}/{wanted} workers ready")
    if not seen.launcher_started or (seen.census and seen.world_proved is None):
        return PhaseResult(
            Phase.INITIALIZING, Reason.PROVING, f"{wanted} worker{'s' * (wanted != 1)} ready, MPI is starting"
        )
    return PhaseResult(Phase.RUNNING, Reason.RUNNING, ranks_on(_world(seen), wanted))


def _lost(seen: Observation) -> PhaseResult | None:
    if not seen.workers_lost:
        return None
    names = ", ".join(str(index) for index in sorted(seen.workers_lost))
    return _failed(Reason.WORKER_LOST, f"worker {names} is gone: it ended unexpectedly")


def _bad_exit(seen: Observation) -> PhaseResult | None:
    """The exit that came first, of all that did not end well by themselves.

    The agents of a launcher that was killed give up at once, and may be seen to end before it: that is its doing.
    """
    named = [
        *((exit, Reason.RANK_FAILED, f"rank {exit.index}") for exit in seen.ranks),
        *((exit, Reason.WORKER_FAILED, f"worker {exit.index}") for exit in seen.workers),
        *((exit, Reason.LAUNCHER_FAILED, "the launcher") for exit in (seen.launcher,) if exit),
    ]
    bad = [entry for entry in named if not entry[0].good and not entry[0].by_us]
    if not bad:
        return None
    killed = any(reason is Reason.LAUNCHER_FAILED and exit.signal for exit, reason, _ in bad)
    first = [
        entry for entry in bad if not (killed and entry[1] is Reason.WORKER_FAILED and not entry[0].signal)
    ]
    exit, reason, who = min(first, key=lambda entry: entry[0].time)
    return _failed(reason, f"{who} {exit}")


def _wrong_world(seen: Observation) -> PhaseResult | None:
    if not seen.census or seen.world_proved in (None, seen.world_planned):
        return None
    message = f"the MPI world has {seen.world_proved} ranks; planned: {seen.world_planned}"
    return _failed(Reason.WORLD_DIFFERS, message)


def _unaccounted(seen: Observation) -> PhaseResult | None:
    """What must be known before success may be said."""
    if seen.launcher is None or not seen.launcher.good:
        return _failed(Reason.LAUNCHER_UNACCOUNTED, "the exit status of the launcher is unknown")
    if seen.census and seen.world_proved is None:
        return _failed(Reason.WORLD_UNPROVED, "the launcher exited with 0, but its ranks were never counted")
    good = {exit.index for exit in seen.workers if exit.good}
    if missing := seen.workers_wanted - len(good):
        return _failed(Reason.WORKER_LOST, f"{missing} of {seen.workers_wanted} workers did not end with 0")
    good = {exit.index for exit in seen.ranks if exit.good}
    if seen.ranks_watched and (missing := seen.world_planned - len(good)):
        return _failed(Reason.RANK_UNACCOUNTED, f"{missing} of {seen.world_planned} ranks did not end with 0")
    return None


def _supervisor_lost() -> PhaseResult:
    return _failed(Reason.SUPERVISOR_LOST, "the supervisor process of the job no longer exists")


def _failed(reason: Reason, message: str) -> PhaseResult:
    return PhaseResult(Phase.FAILED, reason, message)


def _deadline(seen: Observation) -> str:
    limit = (
        "its deadline" if seen.deadline_seconds is None else f"its deadline of {seen.deadline_seconds:g} s"
    )
    return f"the job ran past {limit}"


def _world(seen: Observation) -> int:
    return seen.world_planned or len(seen.ranks)
