"""Derives the phase of a job on one machine or under Slurm from everything that was observed.

An engine fills an `Observation` with facts (processes, sockets, exit codes) and calls `derive`. Success needs
all of them: launcher 0, every worker 0, every rank 0, and a world of the planned size, because mpirun returns
0 for lost workers and for programs of another MPI. `diagnosis` explains failures to users; this module only
finds the outcome.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec

from mpijob.model import Exit, Phase, StepState
from mpijob.model.spec.quantity import ranks_on
from mpijob.model.status.state import script_ended


class Reason(StrEnum):
    """The one-word reasons in states and events. Users and programs compare them: they do not change."""

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
    """Everything that an engine has observed about one attempt of a job.

    `stopped` (name: reason) is set by the engine if it ended the attempt on purpose, for a cause of its own
    (memory, disk, a refused start). `ended` means that no process of the attempt is left. `ranks_watched` is
    False if exits of single ranks cannot be observed; a missing exit then means nothing.
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
    """The phase with its reason and a message."""

    phase: Phase
    reason: Reason
    message: str


def derive(facts: Observation) -> PhaseResult:
    if facts.delete_requested:
        return PhaseResult(Phase.DELETING, Reason.DELETING, "the job is being removed")
    if facts.ended or facts.queued:
        return _without_processes(facts)
    if not facts.supervisor_alive:
        return _supervisor_lost()
    return _ending(facts) or _progress(facts)


def failure(facts: Observation) -> PhaseResult | None:
    """Return the first failure among the facts so far; an engine ends the attempt because of it."""
    if facts.stopped is not None:
        return _failed(facts.stopped, facts.stopped_message or "the job was stopped")
    if facts.deadline_passed:
        message = f"the job ran past {deadline_text(facts.deadline_seconds)}"
        return _failed(Reason.DEADLINE_EXCEEDED, message)
    return _lost_workers(facts) or _bad_exit(facts) or _wrong_world(facts)


def _without_processes(facts: Observation) -> PhaseResult:
    if facts.suspend_requested:
        return PhaseResult(Phase.SUSPENDED, Reason.SUSPENDED, "suspended; resources released")
    if facts.cancel_requested:
        return PhaseResult(Phase.CANCELLED, Reason.CANCELLED, "the job was cancelled")
    if facts.retry_in_seconds is not None:
        message = f"the next attempt starts in {facts.retry_in_seconds:.0f} s"
        return PhaseResult(Phase.QUEUED, Reason.BACKING_OFF, message)
    if facts.queued:
        return PhaseResult(Phase.QUEUED, Reason.WAITING, facts.waiting_for or "waiting in the queue")
    if not facts.supervisor_alive and facts.launcher is None and facts.stopped is None:
        return _supervisor_lost()
    if result := failure(facts) or _unaccounted(facts):
        return result
    world = _world_size(facts)
    ended = (
        script_ended(facts.steps) if facts.script else f"all {world} rank{'s' * (world != 1)} ended with 0"
    )
    return PhaseResult(Phase.SUCCEEDED, Reason.COMPLETED, ended)


def _ending(facts: Observation) -> PhaseResult | None:
    phase = Phase.RUNNING if facts.launcher_started else Phase.PENDING
    if facts.suspend_requested:
        return PhaseResult(phase, Reason.SUSPENDING, "the job is being suspended")
    if facts.cancel_requested:
        return PhaseResult(phase, Reason.CANCELLING, "the job is being cancelled")
    if failed := failure(facts):
        return PhaseResult(phase, failed.reason, f"{failed.message}; stopping the remaining processes")
    return None


def _progress(facts: Observation) -> PhaseResult:
    ready, wanted = facts.workers_ready, facts.workers_wanted
    if ready < wanted:
        return PhaseResult(Phase.PENDING, Reason.STARTING, f"{ready}/{wanted} workers ready")
    if not facts.launcher_started or (facts.census and facts.world_proved is None):
        return PhaseResult(
            Phase.INITIALIZING, Reason.PROVING, f"{wanted} worker{'s' * (wanted != 1)} ready, MPI is starting"
        )
    return PhaseResult(Phase.RUNNING, Reason.RUNNING, ranks_on(_world_size(facts), wanted))


def _lost_workers(facts: Observation) -> PhaseResult | None:
    if not facts.workers_lost:
        return None
    names = ", ".join(str(index) for index in sorted(facts.workers_lost))
    return _failed(Reason.WORKER_LOST, f"worker {names} is gone: it ended unexpectedly")


def _bad_exit(facts: Observation) -> PhaseResult | None:
    named = [
        *((exit, Reason.RANK_FAILED, f"rank {exit.index}") for exit in facts.ranks),
        *((exit, Reason.WORKER_FAILED, f"worker {exit.index}") for exit in facts.workers),
        *((exit, Reason.LAUNCHER_FAILED, "the launcher") for exit in (facts.launcher,) if exit),
    ]
    bad = [entry for entry in named if not entry[0].good and not entry[0].by_us]
    if not bad:
        return None
    # When a launcher is killed, its daemons exit at once, and their ends may be observed before the
    # launcher's own.
    launcher_killed = any(reason is Reason.LAUNCHER_FAILED and exit.signal for exit, reason, _ in bad)
    candidates = [
        entry
        for entry in bad
        if not (launcher_killed and entry[1] is Reason.WORKER_FAILED and not entry[0].signal)
    ]
    exit, reason, name = min(candidates, key=lambda entry: entry[0].time)
    return _failed(reason, f"{name} {exit}")


def _wrong_world(facts: Observation) -> PhaseResult | None:
    if not facts.census or facts.world_proved in (None, facts.world_planned):
        return None
    message = f"the MPI world has {facts.world_proved} ranks; planned: {facts.world_planned}"
    return _failed(Reason.WORLD_DIFFERS, message)


def _unaccounted(facts: Observation) -> PhaseResult | None:
    # What must be known before a job counts as successful.
    if facts.launcher is None or not facts.launcher.good:
        return _failed(Reason.LAUNCHER_UNACCOUNTED, "the exit status of the launcher is unknown")
    if facts.census and facts.world_proved is None:
        return _failed(Reason.WORLD_UNPROVED, "the launcher exited with 0, but its ranks were never counted")
    good = {exit.index for exit in facts.workers if exit.good}
    if missing := facts.workers_wanted - len(good):
        return _failed(Reason.WORKER_LOST, f"{missing} of {facts.workers_wanted} workers did not end with 0")
    good = {exit.index for exit in facts.ranks if exit.good}
    if facts.ranks_watched and (missing := facts.world_planned - len(good)):
        return _failed(
            Reason.RANK_UNACCOUNTED, f"{missing} of {facts.world_planned} ranks did not end with 0"
        )
    return None


def _supervisor_lost() -> PhaseResult:
    return _failed(Reason.SUPERVISOR_LOST, "the supervisor process of the job no longer exists")


def _failed(reason: Reason, message: str) -> PhaseResult:
    return PhaseResult(Phase.FAILED, reason, message)


def deadline_text(seconds: float | None) -> str:
    """Return the name of a deadline for messages: `its deadline of 60 s`."""
    return "its deadline" if seconds is None else f"its deadline of {seconds:g} s"


def _world_size(facts: Observation) -> int:
    return facts.world_planned or len(facts.ranks)
