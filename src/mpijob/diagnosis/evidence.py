"""What is known of a job that failed, waits or is silent: one value that every engine can fill.

Facts (exits, memory, the proved world, the engine's own reason, pods and nodes) are apart from what
programs said, because facts are trusted first. `log_index` makes the said lines searchable; `signals` reads the
facts. Everything but the spec may be missing: what is not known is not said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec
from msgspec.structs import force_setattr

from mpijob.model import Event, Exit, Family, LogLine, MPIJob, Phase, Plan, RankState, Role, Sample
from mpijob.model.spec.quantity import UNLIMITED_BYTES

_ABORTED = re.compile(rb"(?i)MPI_Abort\b")


def without_aborts(said: Iterable[LogLine]) -> Iterator[LogLine]:
    """Yield the lines less those about an abort: for jobs in which it was called for a rank that ended badly."""
    return (line for line in said if not _ABORTED.search(line.text))


class Memory(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one worker used at most, against its limit; `exceeded` when our supervisor ended it for that.

    `enough` says that the system itself counted nobody killed for lack of memory there.
    """

    worker: int
    peak_bytes: int = 0
    limit_bytes: int = 0
    oom_kills: int = 0
    exceeded: bool = False
    enough: bool = False
    time: float = 0.0

    def __post_init__(self) -> None:
        for field in ("peak_bytes", "limit_bytes"):  # a limit that limits nothing is none
            if getattr(self, field) >= UNLIMITED_BYTES:
                force_setattr(self, field, 0)


class World(msgspec.Struct, frozen=True, omit_defaults=True):
    """The world as planned and as the census proved it; `library` is the program's own MPI."""

    planned: int = 0
    proved: int | None = None
    singletons: bool = False
    library: str = ""


class Window(msgspec.Struct, frozen=True, omit_defaults=True):
    """Lines of one speaker that follow each other in a long log, with their numbers in it.

    `file` names the log where there is one; `after` is how many lines the speaker said later.
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
    """What a cluster says of one worker, or of the launcher (`worker` is None)."""

    name: str
    worker: int | None = None
    phase: str = ""
    reason: str = ""
    node: str = ""
    restarts: int = 0
    containers: tuple[str, ...] = ()
    address: str = ""


class Node(msgspec.Struct, frozen=True, omit_defaults=True):
    """A machine that held workers; `ready` is None when nobody could say."""

    name: str
    ready: bool | None = None
    reason: str = ""


class Worry(msgspec.Struct, frozen=True, omit_defaults=True):
    """An early warning that still held when the job ended; `time` is the time of the warning."""

    code: str
    message: str
    time: float = 0.0
    worker: int | None = None
    rank: int | None = None
    confidence: float = 0.6


class Evidence(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Everything known of one attempt of one job.

    `reason` and `message` are the engine's verdict (`Cancelled`, `DeadlineExceeded`, `SupervisorLost`,
    `StartRefused`, `WorkerLost`, `DaemonLost`, `DiskFull` …). `logs` are the last lines of every stream, in
    time order; `windows` are pieces of longer logs. `silent_seconds` is how long no rank has said anything,
    `worries` what had been told as worrying and had not changed when the job ended. `veiled` says that lines may hold
    secrets whose values are not known here, so that none is quoted which proves nothing.
    `libraries` are the directories, by name, of libraries that the loader did not find but the job's files hold.
    `ready` are the workers whose server answered on their own machine. `bare` is set where there is only a
    log: then the spec is a stand-in, and nothing of it is quoted; `shown_end` is what its own end shows, well (True)
    or ill; `went_on` says that it shows neither, and a success, a result or further steps beside an error;
    `restarted`, that a launcher reports the end of its ranks, and output of further ones follows.
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
    worries: tuple[Worry, ...] = ()
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
        """Whether the job has not ended: it waits or runs."""
        return self.phase is not None and not self.phase.final

    @property
    def succeeded(self) -> bool:
        """Whether nothing known speaks against success."""
        exits = (*self.workers, *self.ranks, *((self.launcher,) if self.launcher else ()))
        known = bool(exits) or self.shown_end is True
        return self.reason in ("", "Completed") and known and all(exit.good for exit in exits)

    @property
    def outcome_unseen(self) -> bool:
        """Whether there is only a log, and nothing says how the run ended."""
        return self.bare and self.launcher is None and not self.ranks and self.shown_end is None

    @property
    def world_proved(self) -> bool:
        """Whether the census found the planned world."""
        return self.world.proved is not None and self.world.proved == self.world.planned

    @property
    def ranks_watched(self) -> bool:
        """Whether the engine knows each rank: then one that ends with an error ends the job at once."""
        return bool(self.ranks or self.census)

    def memory_of(self, worker: int | None) -> Memory | None:
        """Return what is known of one worker's memory."""
        return next((memory for memory in self.memory if memory.worker == worker), None)

    def worker_of(self, rank: int | None) -> int | None:
        """Return the worker that held a rank: by its exit or the census, else by the plan's layout."""
        if rank is None:
            return None
        seen = next((exit.worker for exit in self.ranks if exit.index == rank), None)
        if seen is None:
            seen = next((state.worker for state in self.census if state.rank == rank), None)
        if seen is not None or self.bare:
            return seen
        return self.spec.worker_of(rank)

    def ranks_of(self, worker: int | None) -> tuple[int, ...]:
        """Return the ranks that one worker holds, by the census, else by the plan's layout."""
        if worker is None or self.bare:
            return ()
        found = tuple(state.rank for state in self.census if state.worker == worker)
        return found or tuple(self.spec.ranks_of(worker))
