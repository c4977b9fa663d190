"""What is said and measured while a job runs: events, log lines, samples."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from mpijob.errors import Severity


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that happened to a job, in order of `sequence`."""

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


class LogLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of output. Who said it comes from the stream it came on, never from its text.

    `time` is nanoseconds since the epoch. `partial` marks a piece of a line that was too long.
    """

    time: int
    text: bytes
    role: Role
    stream: str = "stdout"
    worker: int | None = None
    rank: int | None = None
    attempt: int = 1
    partial: bool = False

    @property
    def source(self) -> str:
        """The prefix shown to people: `Rank-0`, `Worker-1`, `Launcher`."""
        if self.role is Role.RANK:
            return f"Rank-{self.rank}"
        return f"Worker-{self.worker}" if self.role is Role.WORKER else "Launcher"


class LogQuery(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Which lines are wanted. Empty means all of them, in time order."""

    follow: bool = False
    roles: tuple[Role, ...] = ()
    workers: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    since: float | None = None
    until: float | None = None
    tail: int | None = None
    regex: str = ""
    attempt: int | None = None


class Artifact(msgspec.Struct, frozen=True, order=True):
    """A file that a job left, by its path in the working directory."""

    path: str
    size: int
    time: float


class Sample(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one worker used at one moment: cores busy, resident memory."""

    time: float
    worker: int
    cpu_cores: float
    memory_bytes: int
    attempt: int = 1
