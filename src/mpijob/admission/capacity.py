"""How much a job needs, and the largest shape of it that fits into a room: arithmetic only."""

from __future__ import annotations

import math
from collections.abc import Iterator
from enum import StrEnum

import msgspec

from mpijob.model import Amounts, MPIJob, Quota, Resources
from mpijob.model.spec.quantity import as_bytes, as_count

NO_LIMIT = math.inf


class What(StrEnum):
    """The three things that a job can be short of, scarcest first, as sentences call them."""

    GPUS = "GPUs"
    MEMORY = "memory"
    CORES = "CPU cores"


class Shortage(msgspec.Struct, frozen=True):
    """One thing of which more is wanted than there is."""

    what: What
    wanted: float
    there: float

    @property
    def missing(self) -> float:
        """How much more would be enough."""
        return self.wanted - self.there


def needs(job: MPIJob) -> Amounts:
    """Return what the launcher and all workers need together."""
    return worker_needs(job).times(job.workers).plus(of(job.launcher))


def worker_needs(job: MPIJob) -> Amounts:
    """Return what one worker needs."""
    return of(job.resources)


def of(part: Resources) -> Amounts:
    """Return what one worker, or the launcher, needs."""
    return part.asked


def amount(amounts: Amounts, what: What) -> float:
    """Return one of the three amounts."""
    return {What.GPUS: amounts.gpus, What.MEMORY: amounts.memory_bytes, What.CORES: amounts.cores}[what]


def limit(quota: Quota, what: What) -> float:
    """Return a quota's limit for one thing; endless when it has none."""
    found = {What.GPUS: quota.gpus, What.MEMORY: quota.memory_bytes, What.CORES: quota.cores}[what]
    return NO_LIMIT if found is None else found


def left(quota: Quota) -> dict[What, float]:
    """Return what a quota still has to give."""
    return {what: max(0.0, limit(quota, what) - amount(quota.used, what)) for what in What}


def by_kind(amounts: Amounts) -> dict[What, float]:
    """Return amounts in the form in which rooms are compared."""
    return {what: amount(amounts, what) for what in What}


def shortages(wanted: Amounts, room: dict[What, float]) -> Iterator[Shortage]:
    """Yield everything of which more is wanted than the room has, scarcest kind first."""
    for what in What:
        if amount(wanted, what) > room[what] + 1e-9:
            yield Shortage(what, amount(wanted, what), room[what])


def largest_shape(job: MPIJob, room: Amounts) -> int:
    """Return the largest number of workers of this kind that fits into a room, the launcher with them."""
    return largest(job, by_kind(room))


def largest(job: MPIJob, room: dict[What, float]) -> int:
    """Return the same for a room that may be endless in some of its kinds."""
    worker, launcher = of(job.resources), of(job.launcher)
    counts = [_count(amount(worker, what), amount(launcher, what), room[what]) for what in What]
    fewest = min(counts)
    return job.workers if math.isinf(fewest) else int(fewest)


def _count(worker: float, launcher: float, room: float) -> float:
    if launcher > room + 1e-9:
        return 0
    return math.floor((room - launcher) / worker + 1e-9) if worker and not math.isinf(room) else NO_LIMIT


def counted(what: What, number: float) -> str:
    """Return an amount as sentences say it: `4 GPUs`, `1 GPU`, `16 GiB of memory`, `8 CPU cores`."""
    if what is What.MEMORY:
        return f"{as_bytes(number)} of memory"
    return f"{as_count(number)} {what.value[:-1] if number == 1 else what.value}"


def bare(what: What, number: float) -> str:
    """Return an amount without its name: `4`, `16 GiB`."""
    return as_bytes(number) if what is What.MEMORY else as_count(number)
