"""Records of a running job: events, log lines, samples."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from mpijob.errors import Severity
from mpijob.model.status.level import Level


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """One event of a job, ordered by `sequence`."""

    time: float
    reason: str
    message: str
    severity: Severity = Severity.NOTICE
    attempt: int = 1
    worker: int | None = None
    rank: int | None = None
    sequence: int = 0


class Role(StrEnum):
    """Who said a line: the launcher, a worker itself, or a rank in it."""

    LAUNCHER = "launcher"
    WORKER = "worker"
    RANK = "rank"


# Output of the program itself; a worker's own log is about its connections.
PROGRAM = (Role.LAUNCHER, Role.RANK)


class Mark(StrEnum):
    """What is special about a line: why it is shown, or what is missing."""

    # It matches the search.
    MATCH = "match"
    # A neighbour of a matching line.
    CONTEXT = "context"
    # Lines before it were left out.
    APART = "apart"
    # Added by mpijob: output may be missing here.
    GAP = "gap"
    # Cut off, because it is too long.
    CUT = "cut"
    # The stream ended after it without a newline.
    OPEN = "open"


class LogLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of output. Who said it comes from the stream it came on, never from its text.

    `time` is nanoseconds since the epoch. `partial` marks a piece of a line that was too long. `ranks` are all
    that said the same, where such lines are folded into one.
    """

    time: int
    text: bytes
    role: Role
    stream: str = "stdout"
    worker: int | None = None
    rank: int | None = None
    attempt: int = 1
    partial: bool = False
    ranks: tuple[int, ...] = ()
    marks: tuple[Mark, ...] = ()
    step: int | None = None

    @property
    def source(self) -> str:
        """The prefix shown to people: `Rank-0`, `Worker-1`, `Launcher`, of folded lines `Rank-0-15`."""
        if self.role is Role.RANK:
            return f"Rank-{spans(self.ranks, ',') if self.ranks else self.rank}"
        return f"Worker-{self.worker}" if self.role is Role.WORKER else "Launcher"

    @property
    def level(self) -> Level | None:
        """How serious the program says that it is, if it says so in a form that is known."""
        # The patterns are compiled at the first use.
        from mpijob.model.status import log_level

        return log_level.find(self.text)


class LogQuery(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Which lines are wanted, and how they are put together. Empty means all of them, in time order.

    `level` is the least one; `before` and `after` are lines around each that `regex` or `level` wants; `find`
    marks lines without leaving others out. `tidy` joins the pieces of long lines and shows a progress bar as its
    last state; `fold` makes one line of what several ranks said alike. `previous` is the attempt before the last.
    """

    follow: bool = False
    roles: tuple[Role, ...] = ()
    workers: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    since: float | None = None
    until: float | None = None
    tail: int | None = None
    regex: str = ""
    attempt: int | None = None
    streams: tuple[str, ...] = ()
    level: Level | None = None
    before: int = 0
    after: int = 0
    find: str = ""
    tidy: bool = False
    fold: bool = False
    previous: bool = False


def spans(numbers: Iterable[int], comma: str = ", ") -> str:
    """Return numbers as `2, 4-7`."""
    found: list[list[int]] = []
    for number in sorted(set(numbers)):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return comma.join(str(first) if first == last else f"{first}-{last}" for first, last in found)


class Artifact(msgspec.Struct, frozen=True, order=True):
    """An output file, by its path in the working directory; attempt 0 if it belongs to all attempts."""

    path: str
    size: int
    time: float
    attempt: int = 0


class NodePlace(msgspec.Struct, frozen=True, order=True, omit_defaults=True):
    """Zone and rack of a node from its labels; empty without such a label."""

    name: str
    zone: str = ""
    rack: str = ""


class Sample(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one worker used at one moment: cores busy, resident memory, GPUs busy (2 of 4 at half load are 1.0).

    `io_wait` is how many of its processes waited for a disk, `network` the bytes that it sent and received a second.
    `mpi` is the share of their time that its ranks spent in MPI, where their calls are counted.
    """

    time: float
    worker: int
    cpu_cores: float
    memory_bytes: int
    attempt: int = 1
    gpus: float = 0.0
    gpu_memory_bytes: int = 0
    io_wait: float = 0.0
    network: float = 0.0
    mpi: float | None = None
