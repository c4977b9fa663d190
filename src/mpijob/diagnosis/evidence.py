"""What is known of a job that failed: one value that every engine can fill.

Facts (exits, memory, the proved world, the engine's own reason) are apart from what programs said,
because facts are trusted first. `corpus` makes the said lines searchable; `signs` reads the facts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec

from mpijob.model import Exit, Family, LogLine, MPIJob

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


class World(msgspec.Struct, frozen=True, omit_defaults=True):
    """The world as planned and as the census proved it; `library` is the program's own MPI."""

    planned: int = 0
    proved: int | None = None
    singletons: bool = False
    library: str = ""


class Evidence(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Everything known of one attempt of one job.

    `reason` and `message` are the engine's verdict (`Cancelled`, `DeadlineExceeded`, `SupervisorLost`,
    `StartRefused`, `WorkerLost`, `DaemonLost`, `DiskFull` …). `logs` are windows in time order: the
    last lines of every stream, more of the launcher's. `silent_seconds` is how long no rank had said
    anything when the attempt ended. `ready` are the workers whose server answered on their own machine.
    """

    spec: MPIJob
    family: Family = Family.AUTO
    attempt: int = 1
    reason: str = ""
    message: str = ""
    worker: int | None = None
    launcher: Exit | None = None
    workers: tuple[Exit, ...] = ()
    ranks: tuple[Exit, ...] = ()
    memory: tuple[Memory, ...] = ()
    world: World = World()
    logs: tuple[LogLine, ...] = ()
    elapsed_seconds: float | None = None
    silent_seconds: float | None = None
    ready: tuple[int, ...] = ()

    @property
    def succeeded(self) -> bool:
        """Whether nothing known speaks against success."""
        exits = (*self.workers, *self.ranks, *((self.launcher,) if self.launcher else ()))
        return self.reason in ("", "Completed") and bool(exits) and all(exit.good for exit in exits)

    @property
    def world_proved(self) -> bool:
        """Whether the census found the planned world."""
        return self.world.proved is not None and self.world.proved == self.world.planned

    def memory_of(self, worker: int | None) -> Memory | None:
        """Return what is known of one worker's memory."""
        return next((memory for memory in self.memory if memory.worker == worker), None)

    def worker_of(self, rank: int | None) -> int | None:
        """Return the worker that held a rank, by its exit if that is known, else by the plan's layout."""
        if rank is None:
            return None
        seen = next((exit.worker for exit in self.ranks if exit.index == rank), None)
        if seen is not None:
            return seen
        worker = rank // max(1, self.spec.slots)
        return worker if worker < self.spec.workers else None
