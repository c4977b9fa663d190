"""The evidence about a job that failed, waits or is silent: one value that every engine can fill.

Facts (exits, memory, the proved world, the engine's own reason, pods and nodes) are separate from programs'
output, because facts are trusted first. `log_index` makes the lines searchable; `signals` reads the facts.
Everything except the spec may be missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec
from msgspec.structs import force_setattr

from mpijob.model import Event, Exit, Family, LogLine, MPIJob, Phase, Plan, RankState, Role, Sample
from mpijob.model.spec.quantity import UNLIMITED_BYTES

_ABORTED = re.compile(rb"(?i)MPI_Abort\b")


def without_aborts(lines: Iterable[LogLine]) -> Iterator[LogLine]:
    """Yield the lines except those about an abort: for jobs in which the engine aborted MPI after a rank had
    failed.
    """
    return (line for line in lines if not _ABORTED.search(line.text))


class Memory(msgspec.Struct, frozen=True, omit_defaults=True):
    """The peak memory of one worker and its limit; `exceeded` if our supervisor killed it for that.

    `enough` means that the kernel counted no OOM kill there.
    """

    worker: int
    peak_bytes: int = 0
    limit_bytes: int = 0
    oom_kills: int = 0
    exceeded: bool = False
    enough: bool = False
    time: float = 0.0

    def __post_init__(self) -> None:
        # Without a limit, cgroups report a huge number.
        for field in ("peak_bytes", "limit_bytes"):
            if getattr(self, field) >= UNLIMITED_BYTES:
                force_setattr(self, field, 0)


class World(msgspec.Struct, frozen=True, omit_defaults=True):
    """The planned MPI world, and the one that the census proved; `library` is the program's own MPI."""

    planned: int = 0
    proved: int | None = None
    singletons: bool = False
    library: str = ""


class Window(msgspec.Struct, frozen=True, omit_defaults=True):
    """Consecutive lines of one source in a long log, with their line numbers.

    `file` is the log's path, if any; `after` is the number of later lines of the source.
    """

    role: Role
    lines: tuple[bytes, ...]
    numbers: tuple[int, ...]
    times: tuple[int, ...]
    stream: str = "stdout"
    worker: int | None = None
    rank: int | None = None
    file: str = ""
    after: int = 0


class Pod(msgspec.Struct, frozen=True, omit_defaults=True):
    """A cluster's information about one worker, or about the launcher (`worker` is None)."""

    name: str
    worker: int | None = None
    phase: str = ""
    reason: str = ""
    node: str = ""
    restarts: int = 0
    containers: tuple[str, ...] = ()
    address: str = ""


class Node(msgspec.Struct, frozen=True, omit_defaults=True):
    """A machine that had workers; `ready` is None if it is unknown."""

    name: str
    ready: bool | None = None
    reason: str = ""


class ActiveWarning(msgspec.Struct, frozen=True, omit_defaults=True):
    """An early warning that was still active when the job ended; `time` is when it was raised."""

    code: str
    message: str
    time: float = 0.0
    worker: int | None = None
    rank: int | None = None
    confidence: float = 0.6


class Evidence(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Everything known about one attempt of one job.

    `reason` and `message` are the engine's verdict (`Cancelled`, `DeadlineExceeded`, `SupervisorLost`,
    `StartRefused`, `WorkerLost`, `DaemonLost`, `DiskFull` …). `logs` are the last lines of every stream, in
    time order; `windows` are parts of longer logs. `silent_seconds` is the time since any rank's last output;
    `active_warnings` are the warnings that were active at the end. `veiled` means that lines may contain secrets with
    unknown values, so only lines that prove something are quoted. `libraries` are the directories, by name,
    of libraries that the loader did not find but the job's files contain. `ready` are the workers whose
    server answered on their own machine. `bare` means that there is only a log: the spec is a placeholder,
    and nothing of it is quoted. `shown_end` is the outcome that the log's end shows; `went_on`: it shows
    none, but a success, a result or further steps beside an error; `restarted`: a launcher reports the end of
    its ranks, and output of further ones follows.
    """

    spec: MPIJob
    bare: bool = False
    shown_end: bool | None = None
    went_on: bool = False
    restarted: bool = False
    family: Family = Family.AUTO
    attempt: int = 1
    phase: Phase | None = None
    reason: str = ""
    message: str = ""
    worker: int | None = None
    plan: Plan | None = None
    launcher: Exit | None = None
    workers: tuple[Exit, ...] = ()
    ranks: tuple[Exit, ...] = ()
    memory: tuple[Memory, ...] = ()
    samples: tuple[Sample, ...] = ()
    world: World = World()
    census: tuple[RankState, ...] = ()
    pods: tuple[Pod, ...] = ()
    nodes: tuple[Node, ...] = ()
    events: tuple[Event, ...] = ()
    active_warnings: tuple[ActiveWarning, ...] = ()
    veiled: bool = False
    logs: tuple[LogLine, ...] = ()
    windows: tuple[Window, ...] = ()
    started: float | None = None
    elapsed_seconds: float | None = None
    silent_seconds: float | None = None
    ready: tuple[int, ...] = ()
    libraries: Mapping[str, str] = {}

    @property
    def going(self) -> bool:
        """Whether the job waits or runs."""
        return self.phase is not None and not self.phase.final

    @property
    def succeeded(self) -> bool:
        """Whether the run ended and nothing known contradicts its success."""
        exits = (*self.workers, *self.ranks, *((self.launcher,) if self.launcher else ()))
        known = bool(exits) or self.shown_end is True
        return self.reason in ("", "Completed") and known and all(exit.good for exit in exits)

    @property
    def outcome_unseen(self) -> bool:
        """Whether there is only a log, and it does not show how the run ended."""
        return self.bare and self.launcher is None and not self.ranks and self.shown_end is None

    @property
    def world_proved(self) -> bool:
        """Whether the census found the planned world."""
        return self.world.proved is not None and self.world.proved == self.world.planned

    @property
    def ranks_watched(self) -> bool:
        """Whether the engine knows each rank: then a failed rank ends the job at once."""
        return bool(self.ranks or self.census)

    def memory_of(self, worker: int | None) -> Memory | None:
        return next((memory for memory in self.memory if memory.worker == worker), None)

    def worker_of(self, rank: int | None) -> int | None:
        """Return the worker of a rank: by its exit or the census, else by the planned layout."""
        if rank is None:
            return None
        seen = next((exit.worker for exit in self.ranks if exit.index == rank), None)
        if seen is None:
            seen = next((state.worker for state in self.census if state.rank == rank), None)
        if seen is not None or self.bare:
            return seen
        return self.spec.worker_of(rank)

    def ranks_of(self, worker: int | None) -> tuple[int, ...]:
        """Return the ranks of one worker, by the census, else by the planned layout."""
        if worker is None or self.bare:
            return ()
        found = tuple(state.rank for state in self.census if state.worker == worker)
        return found or tuple(self.spec.ranks_of(worker))
