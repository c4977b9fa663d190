"""The observed state of jobs: phases, workers, ranks. It is derived from observations."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec
from msgspec.structs import force_setattr

from mpijob.errors import Finding
from mpijob.model.ref import JobRef
from mpijob.model.spec.quantity import UNLIMITED_BYTES
from mpijob.model.status.forecast import Forecast


class Phase(StrEnum):
    """Phase of a job."""

    QUEUED = "Queued"
    PENDING = "Pending"
    INITIALIZING = "Initializing"
    RUNNING = "Running"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"
    DELETING = "Deleting"

    @property
    def final(self) -> bool:
        """Whether the job has ended."""
        return self in (Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED)

    @property
    def active(self) -> bool:
        """Whether the job holds resources now."""
        return self in (Phase.PENDING, Phase.INITIALIZING, Phase.RUNNING, Phase.DELETING)

    @property
    def coarse(self) -> str:
        """Pending, Running, Succeeded or Failed."""
        if self is Phase.SUCCEEDED:
            return "Succeeded"
        if self in (Phase.FAILED, Phase.CANCELLED):
            return "Failed"
        return "Running" if self in (Phase.RUNNING, Phase.DELETING) else "Pending"


class Exit(msgspec.Struct, frozen=True, omit_defaults=True):
    """How one process ended; `index` is the worker's or the rank's number.

    `time` (seconds since the epoch) orders the first cause before what followed from it. `by_us` marks
    what the engine ended itself while cleaning up, which is never a cause.
    """

    code: int | None = None
    signal: int | None = None
    time: float = 0.0
    index: int = 0
    worker: int | None = None
    by_us: bool = False

    @property
    def good(self) -> bool:
        """Whether it ended by itself with 0."""
        return self.code == 0 and not self.signal

    @property
    def killer(self) -> int | None:
        """The signal that ended it; shells report signal 9 as exit code 137."""
        if self.signal:
            return self.signal
        return self.code - 128 if self.code is not None and 128 < self.code < 160 else None

    @property
    def status(self) -> int | None:
        """The exit code as a shell would show it."""
        return 128 + self.signal if self.signal else self.code

    def __str__(self) -> str:
        if self.signal:
            return f"was ended by signal {self.signal}"
        return "ended, its exit code is not known" if self.code is None else f"exited with {self.code}"


class RankState(msgspec.Struct, frozen=True, omit_defaults=True):
    """One rank with its result.

    `followed` marks an exit that is only a consequence: MPI or the engine ended this rank too.
    """

    rank: int
    worker: int
    local_rank: int = 0
    node: str = ""
    pid: int = 0
    gpus: tuple[str, ...] = ()
    exit_code: int | None = None
    followed: bool = False


class WorkerState(msgspec.Struct, frozen=True, omit_defaults=True):
    """One worker: phase, resources and exit status."""

    index: int
    name: str
    phase: Phase
    node: str = ""
    group: str = ""
    reason: str = ""
    message: str = ""
    exit_code: int | None = None
    restarts: int = 0
    gpus: tuple[str, ...] = ()
    cpu_cores: float | None = None
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.memory_limit_bytes is not None and self.memory_limit_bytes >= UNLIMITED_BYTES:
            force_setattr(self, "memory_limit_bytes", None)


class LauncherPhase(StrEnum):
    """How far a launcher has come."""

    # Without a node, or waiting for its workers.
    PENDING = "Pending"
    # On a node; image, volumes or workers are being prepared.
    SCHEDULED = "Scheduled"
    # Its process runs and connects to the workers.
    STARTING = "Starting"
    # Every worker has responded; the ranks are being started and counted.
    READY = "Ready"
    # The job's command runs.
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"

    @property
    def final(self) -> bool:
        """Whether the launcher has ended, or never will start."""
        return self in (LauncherPhase.SUCCEEDED, LauncherPhase.FAILED, LauncherPhase.CANCELLED)


class LauncherState(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The launcher: phase, node, resources and exit status.

    Times are seconds since the epoch. `cores` is its CPU request, `memory_bytes` its peak memory. `log_source` is the
    source of its output: a container as `pod/NAME/CONTAINER`, or a local file as `file:PATH`.
    """

    name: str
    phase: LauncherPhase
    node: str = ""
    reason: str = ""
    message: str = ""
    exit_code: int | None = None
    restarts: int = 0
    cores: float | None = None
    memory_limit_bytes: int | None = None
    gpus: tuple[str, ...] = ()
    memory_bytes: int | None = None
    log_source: str = ""
    scheduled: float | None = None
    started: float | None = None
    ready: float | None = None
    running: float | None = None
    finished: float | None = None

    def __post_init__(self) -> None:
        if self.memory_limit_bytes is not None and self.memory_limit_bytes >= UNLIMITED_BYTES:
            force_setattr(self, "memory_limit_bytes", None)

    @property
    def is_ready(self) -> bool:
        """Whether it has reached every worker and has not ended."""
        return self.phase in (LauncherPhase.READY, LauncherPhase.RUNNING)


class StepState(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step of a script: a launch in the launcher.

    Times are seconds since the epoch. `ranks` is 0 if unknown; `workers` are those with ranks of the step.
    `peak_bytes` is the highest memory of one worker meanwhile, 0 if not measured.
    """

    number: int
    command: str
    ranks: int = 0
    workers: tuple[int, ...] = ()
    started: float = 0.0
    finished: float | None = None
    exit_code: int | None = None
    failed_rank: int | None = None
    peak_bytes: int = 0

    @property
    def name(self) -> str:
        """The launcher's name, as in `mpirun`."""
        return self.command.partition(" ")[0]


def script_ended(steps: Iterable[StepState]) -> str:
    """Return how a script ended that succeeded, and which of its steps did not."""
    failed = [f"step {step.number} ended with {step.exit_code}" for step in steps if step.exit_code]
    return "; ".join(("the script ended with 0", *failed))


class JobState(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The observed state of one job. Times are seconds since the epoch.

    `run` counts the jobs of one name from 1, in the order of submission; 0 if unknown. While the job waits,
    `queue_position`, `wait_estimate_seconds`, `wait_range_seconds` and `wait_basis` estimate its start from
    now, with the basis; `estimated` is the estimate at submission. `deleted` is set if the job was deleted
    and this is its record; `released` if it freed its resources before it ended, by being suspended.
    """

    ref: JobRef
    phase: Phase
    kind: str = "MPIJob"
    engine: str = ""
    mpi: str = ""
    owner: str = ""
    labels: dict[str, str] = {}
    description: str = ""
    image: str = ""
    queue: str = ""
    priority: int = 0

    reason: str = ""
    message: str = ""
    waiting_for: str = ""
    queue_position: int | None = None
    wait_estimate_seconds: float | None = None
    wait_range_seconds: tuple[float, float] | None = None
    wait_basis: str = ""
    estimated: Forecast | None = None

    run: int = 0
    attempt: int = 1
    attempts_allowed: int = 1
    world: int = 0
    workers_wanted: int = 0
    launcher: LauncherState | None = None
    workers: tuple[WorkerState, ...] = ()
    ranks: tuple[RankState, ...] = ()
    steps: tuple[StepState, ...] = ()
    launcher_exit_code: int | None = None

    created: float = 0.0
    queued: float | None = None
    started: float | None = None
    running: float | None = None
    released: float | None = None
    finished: float | None = None
    deleted: float | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def aggregate(self) -> str:
        """The workers in one line: `7/8 Running, 1 Pending`."""
        counts: dict[str, int] = {}
        for worker in self.workers:
            counts[worker.phase.value] = counts.get(worker.phase.value, 0) + 1
        if not counts:
            return f"0/{self.workers_wanted}"
        ordered = sorted(counts.items(), key=lambda item: (item[0] != Phase.RUNNING, -item[1], item[0]))
        (first, number), *rest = ordered
        total = max(self.workers_wanted, len(self.workers))
        return ", ".join([f"{number}/{total} {first}", *(f"{count} {phase}" for phase, count in rest)])

    def forecast(self, found: Forecast) -> JobState:
        """Return the state with this estimate of the job's start."""
        return msgspec.structs.replace(
            self,
            queue_position=found.position,
            wait_estimate_seconds=found.seconds,
            wait_range_seconds=found.span,
            wait_basis=found.basis,
        )

    def queued_seconds(self, now: float) -> float:
        """Return how long the last attempt has waited in the queue."""
        begin = self.queued or self.created
        end = self.started or (now if not self.phase.final else self.finished or begin)
        return max(0.0, end - begin)

    def duration_seconds(self, now: float) -> float | None:
        """Return how long the last attempt has run."""
        if self.started is None:
            return None
        ended = self.finished if self.finished is not None else now
        return max(0.0, (ended if self.released is None else min(self.released, ended)) - self.started)


class Page(msgspec.Struct, frozen=True):
    """One page of a list, newest first; `after` is the next page's cursor, "" at the end.

    `notices` say what the list may lack: what the user has no right to see.
    """

    items: tuple[JobState, ...]
    after: str = ""
    total: int = 0
    notices: tuple[Finding, ...] = ()
