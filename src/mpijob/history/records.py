"""The values of the job history: records, log sources, chunks and gaps.

Their field names are part of the stored format.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

import msgspec

from mpijob.model import JobKey, JobState, Role
from mpijob.model.status import records


class LogFormat(StrEnum):
    """The format of the stored lines of a log source."""

    # Files of the local engine: time, stream, tag, text.
    CRI = "cri"
    # A pod's log as the API server returns it: time, text.
    POD = "pod"


class LogSource(msgspec.Struct, frozen=True, kw_only=True):
    """One source of lines: a local log file, or one run of a pod's container.

    `source` is the name of the file or pod; `origin` distinguishes several with that name. `family` and
    `tagged` say how a launcher's lines are split into ranks.
    """

    key: JobKey
    attempt: int = 1
    role: Role = Role.LAUNCHER
    worker: int | None = None
    rank: int | None = None
    source: str = ""
    origin: str = ""
    format: LogFormat = LogFormat.CRI
    family: str = ""
    tagged: bool = False
    id: int = 0
    ended: bool = False


class Position(msgspec.Struct, frozen=True):
    """How far a log source is stored: the time stamp of its last line, and how many of the last lines have it."""

    stamp: bytes = b""
    repeats: int = 0


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """A part of one source's lines, in a file whose name is below the directory of logs (`layout`).

    `size` is how many bytes of the file are valid, `ranks` the ranks whose lines it contains, as in
    `format_numbers` ("" if they are not known). A sealed chunk never changes.
    """

    id: int
    source_id: int
    file: str
    first_ns: int = 0
    last_ns: int = 0
    lines: int = 0
    raw_bytes: int = 0
    size: int = 0
    ranks: str = ""
    sealed: bool = False


class Gap(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Missing lines: their time range (nanoseconds), source and reason."""

    first_ns: int
    last_ns: int
    reason: str
    # The wire name of earlier releases.
    source_id: int = msgspec.field(default=0, name="voice")
    attempt: int = 1
    role: Role | None = None
    worker: int | None = None
    rank: int | None = None

    def format_message(self) -> str:
        """Return the line that a reader of the log sees at this place."""
        return f"mpijob: lines are missing here: {self.reason}"


class Transition(msgspec.Struct, frozen=True, omit_defaults=True):
    """A state transition of a job."""

    time: float
    phase: str
    reason: str = ""
    message: str = ""
    attempt: int = 1
    workers: str = ""


class Fact(msgspec.Struct, frozen=True, omit_defaults=True):
    """An observation about one object of a job: a pod, a node, a manifest; `data` has the object's own fields."""

    kind: str
    name: str
    time: float
    data: dict[str, Any] = {}


class Record(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Everything recorded of one job except its lines and events."""

    state: JobState
    deleted: float | None = None
    first_seen: float = 0.0
    last_seen: float = 0.0
    moments: tuple[Transition, ...] = ()
    facts: tuple[Fact, ...] = ()
    gaps: tuple[Gap, ...] = ()


def format_numbers(numbers: Iterable[int]) -> str:
    """Format numbers as `0-3,7`."""
    return records.spans(numbers, ",")


def parse_numbers(text: str) -> set[int]:
    found: set[int] = set()
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found
