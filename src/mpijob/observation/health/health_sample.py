"""What was measured of a running job, as plain values: output, load and progress of ranks, and disk space.

The local supervisor and the Kubernetes backend fill a `HealthSample`, each with what it can measure;
`warnings` checks it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

import msgspec

from mpijob.errors import Fix
from mpijob.model import JobState, LogLine, Sample

QUIET_SECONDS = 120.0
REGULAR_LINES = 5
# Shares of a core for each rank. BUSY_CORES is low because ranks may share cores.
IDLE_CORES, BUSY_CORES = 0.03, 0.2
_STEP = re.compile(rb"(?i)\b(?:global[_ ]?step|step|iter(?:ation)?|batch|epoch)s?\b[\s=:#\[(]{0,3}(\d{1,12})")


class RankOutput(msgspec.Struct, frozen=True):
    """The output of one rank: the times of its first and last line, and the number of lines."""

    rank: int
    first: float
    last: float
    lines: int

    @property
    def pause(self) -> float:
        """The mean time between two of its lines."""
        return (self.last - self.first) / (self.lines - 1) if self.lines > 1 else math.inf

    @property
    def regular(self) -> bool:
        """Whether it wrote often enough for its silence to mean something."""
        return self.lines >= REGULAR_LINES


class Load(msgspec.Struct, frozen=True):
    """The cores that each of some ranks used over the last quiet time; all ranks of a worker, or one rank."""

    ranks: tuple[int, ...]
    worker: int
    cores: float


class Step(msgspec.Struct, frozen=True):
    """A step counter in a rank's output."""

    time: float
    rank: int
    step: int


class FreeSpace(msgspec.Struct, frozen=True):
    """Free and total space of the disk that the job writes to."""

    time: float
    free_bytes: int
    total_bytes: int


class HealthSample(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was measured of a running job.

    `quiet_seconds` is how long a state must last to justify a warning; `loads` are measured over that time.
    `was_busy` means that ranks computed or wrote output before. `ended` are ranks that have ended.
    """

    now: float
    state: JobState
    quiet_seconds: float = QUIET_SECONDS
    samples: tuple[Sample, ...] = ()
    outputs: tuple[RankOutput, ...] = ()
    steps: tuple[Step, ...] = ()
    loads: tuple[Load, ...] = ()
    disk_space: tuple[FreeSpace, ...] = ()
    ended: frozenset[int] = frozenset()
    was_busy: bool = False
    retries: int = 0

    @property
    def last_output(self) -> float:
        """The time of the last line of any rank; without output, the start of the run."""
        return max((talk.last for talk in self.outputs), default=self.state.running or self.now)

    @property
    def silence(self) -> float:
        """The seconds since the last line of any rank."""
        return self.now - self.last_output


def outputs_of(lines: Iterable[LogLine]) -> tuple[RankOutput, ...]:
    """Return the output of each rank, from its lines."""
    times_of_rank: dict[int, list[float]] = {}
    for line in lines:
        if line.rank is not None:
            times_of_rank.setdefault(line.rank, []).append(line.time / 1e9)
    return tuple(
        RankOutput(rank, times[0], times[-1], len(times)) for rank, times in sorted(times_of_rank.items())
    )


def step_in(text: bytes) -> int | None:
    """Return the last step counter in a text; None without one."""
    found = _STEP.findall(text)
    return int(found[-1]) if found else None


def steps_of(lines: Iterable[LogLine]) -> tuple[Step, ...]:
    counters = ((line, step_in(line.text)) for line in lines if line.rank is not None)
    return tuple(Step(line.time / 1e9, line.rank or 0, step) for line, step in counters if step is not None)


def loads_of(samples: Iterable[Sample], state: JobState, since: float) -> tuple[Load, ...]:
    """Return the load of each worker's ranks since a time, for engines that measure workers only."""
    ranks: dict[int, list[int]] = {}
    for rank in state.ranks:
        ranks.setdefault(rank.worker, []).append(rank.rank)
    cores: dict[int, list[float]] = {}
    for sample in samples:
        if sample.time >= since and sample.attempt == state.attempt:
            cores.setdefault(sample.worker, []).append(sample.cpu_cores)
    # The maximum: a worker that was busy once in that time is not idle.
    return tuple(
        Load(tuple(ranks[worker]), worker, max(cores[worker]) / len(ranks[worker]))
        for worker in sorted(ranks.keys() & cores.keys())
    )


def pace(pause: float) -> str:
    """Return how often a rank writes, for messages: `about every 2 s`."""
    return "more than once a second" if pause < 1 else f"about every {span(pause)}"


def span(seconds: float | None) -> str:
    """Return a duration for messages: `40 s`, `3 min`, `2.5 h`."""
    if seconds is None:
        return "an unknown time"
    if seconds < 1:
        return "less than a second"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def command_fix(text: str, command: str) -> Fix:
    """Return a fix with a command. Its text ends with the command, for terminals; other interfaces use `command`."""
    return Fix(f"{text}: {command}", command=command)
