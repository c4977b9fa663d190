"""What is remembered of a job, as values: its record, who spoke, what is missing and why."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

import msgspec

from mpijob.model import JobKey, JobState, Role
from mpijob.model.status import records


class Form(StrEnum):
    """How the stored lines of a voice are written."""

    CRI = "cri"  # the local engine's files: time, stream, tag, text
    POD = "pod"  # a pod's log as the API server gives it: time, text


class LogSource(msgspec.Struct, frozen=True, kw_only=True):
    """One source of lines: a local log file, or one life of a pod's container.

    `source` is the file's or the pod's name; `origin` tells apart those that had the same name. `family`
    and `tagged` say how a launcher's lines are taken apart into ranks.
    """

    key: JobKey
    attempt: int = 1
    role: Role = Role.LAUNCHER
    worker: int | None = None
    rank: int | None = None
    source: str = ""
    origin: str = ""
    form: Form = Form.CRI
    family: str = ""
    tagged: bool = False
    id: int = 0
    ended: bool = False


class Position(msgspec.Struct, frozen=True):
    """How far a voice is stored: the time stamp of its last line, and how many of the last lines carry it."""

    stamp: bytes = b""
    repeats: int = 0


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of one voice's lines in a file; `size` is how much of the file counts, `ranks` who speaks in it.

    `file` is its name below the directory of logs (`layout`).
    """

    id: int
    voice: int
    file: str
    first_ns: int = 0
    last_ns: int = 0
    lines: int = 0
    raw_bytes: int = 0
    size: int = 0
    ranks: str = ""
    sealed: bool = False


class Gap(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What is missing from a record: between which moments (nanoseconds), of whom, and why."""

    first_ns: int
    last_ns: int
    reason: str
    voice: int = 0
    attempt: int = 1
    role: Role | None = None
    worker: int | None = None
    rank: int | None = None

    def sentence(self) -> str:
        """Return what a reader of the log is told at this place."""
        return f"mpijob: lines are missing here: {self.reason}"


class Moment(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a job stood from one moment on."""

    time: float
    phase: str
    reason: str = ""
    message: str = ""
    attempt: int = 1
    workers: str = ""


class Fact(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was seen of one thing around a job: a pod, a node, a document; `data` is told in its own words."""

    kind: str
    name: str
    time: float
    data: dict[str, Any] = {}


class Record(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """All that is remembered of one job but its lines and events."""

    state: JobState
    deleted: float | None = None
    first_seen: float = 0.0
    last_seen: float = 0.0
    moments: tuple[Moment, ...] = ()
    facts: tuple[Fact, ...] = ()
    gaps: tuple[Gap, ...] = ()


def spans(numbers: Iterable[int]) -> str:
    """Return numbers as `0-3,7`."""
    return records.spans(numbers, ",")


def numbers(text: str) -> set[int]:
    """Return the numbers that `spans` wrote."""
    found: set[int] = set()
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found
