"""What is seen of a job that runs, as plain values: how ranks speak, what they keep busy, how far they are.

The local supervisor and the cluster client fill a `HealthSample`, each with what it can see; `warnings` judges it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

import msgspec

from mpijob.errors import Fix
from mpijob.model import JobState, LogLine, Sample

QUIET_SECONDS = 120.0
REGULAR_BEATS = 5
IDLE_CORES, BUSY_CORES = 0.03, 0.2  # of a core, for each rank; ranks may share cores
_STEP = re.compile(rb"(?i)\b(?:global[_ ]?step|step|iter(?:ation)?|batch|epoch)s?\b[\s=:#\[(]{0,3}(\d{1,12})")


class Traffic(msgspec.Struct, frozen=True):
    """How one rank speaks: when first and last, and how often it was heard in between."""

    rank: int
    first: float
    last: float
    beats: int

    @property
    def pause(self) -> float:
        """The usual time between two of its lines."""
        return (self.last - self.first) / (self.beats - 1) if self.beats > 1 else math.inf

    @property
    def regular(self) -> bool:
        """Whether it spoke often enough for its silence to mean something."""
        return self.beats >= REGULAR_BEATS


class Load(msgspec.Struct, frozen=True):
    """The cores that some ranks kept busy, each, over the last quiet time; all ranks of a worker, or one."""

    ranks: tuple[int, ...]
    worker: int
    cores: float


class Step(msgspec.Struct, frozen=True):
    """The step counter that a rank printed at a moment."""

    time: float
    rank: int
    step: int


class FreeSpace(msgspec.Struct, frozen=True):
    """What was free on the disk that the job writes to."""

    time: float
    free_bytes: int
    total_bytes: int


class HealthSample(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was seen of a running job.

    `quiet_seconds` is how long something must last before it is worrying; the measures of `loads` are over
    that time. `was_busy` says that ranks computed or spoke before. `ended` are ranks that have ended.
    """

    now: float
    state: JobState
    quiet_seconds: float = QUIET_SECONDS
    samples: tuple[Sample, ...] = ()
    talks: tuple[Traffic, ...] = ()
    steps: tuple[Step, ...] = ()
    loads: tuple[Load, ...] = ()
    rooms: tuple[FreeSpace, ...] = ()
    ended: frozenset[int] = frozenset()
    was_busy: bool = False
    retries: int = 0

    @property
    def last_word(self) -> float:
        """When anybody was last heard; the start of the run when nobody ever was."""
        return max((talk.last for talk in self.talks), default=self.state.running or self.now)

    @property
    def silence(self) -> float:
        """How long nobody has said anything."""
        return self.now - self.last_word


def talks_of(lines: Iterable[LogLine]) -> tuple[Traffic, ...]:
    """Return how the ranks speak, from their lines."""
    heard: dict[int, list[float]] = {}
    for line in lines:
        if line.rank is not None:
            heard.setdefault(line.rank, []).append(line.time / 1e9)
    return tuple(Traffic(rank, times[0], times[-1], len(times)) for rank, times in sorted(heard.items()))


def step_in(text: bytes) -> int | None:
    """Return the last step counter that a text names, if it names one."""
    found = _STEP.findall(text)
    return int(found[-1]) if found else None


def steps_of(lines: Iterable[LogLine]) -> tuple[Step, ...]:
    """Return the step counters in the ranks' lines."""
    told = ((line, step_in(line.text)) for line in lines if line.rank is not None)
    return tuple(Step(line.time / 1e9, line.rank or 0, step) for line, step in told if step is not None)


def loads_of(samples: Iterable[Sample], state: JobState, since: float) -> tuple[Load, ...]:
    """Return what each worker's ranks kept busy since a moment, where only workers are measured."""
    ranks: dict[int, list[int]] = {}
    for one in state.ranks:
        ranks.setdefault(one.worker, []).append(one.rank)
    cores: dict[int, list[float]] = {}
    for sample in samples:
        if sample.time >= since and sample.attempt == state.attempt:
            cores.setdefault(sample.worker, []).append(sample.cpu_cores)
    return tuple(
        _load(worker, ranks[worker], cores[worker]) for worker in sorted(ranks.keys() & cores.keys())
    )


def _load(worker: int, ranks: Sequence[int], cores: Sequence[float]) -> Load:
    return Load(tuple(ranks), worker, max(cores) / len(ranks))


def pace(pause: float) -> str:
    """Return how often something is said: `about every 2 s`."""
    return "more than once a second" if pause < 1 else f"about every {span(pause)}"


def span(seconds: float | None) -> str:
    """Return a time as people say it: `40 s`, `3 min`, `2 h`."""
    if seconds is None:
        return "an unknown time"
    if seconds < 1:
        return "less than a second"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def command_fix(text: str, command: str) -> Fix:
    """Return a fix that a command makes: the text ends with it, for terminals; other interfaces read `command`."""
    return Fix(f"{text}: {command}", command=command)
