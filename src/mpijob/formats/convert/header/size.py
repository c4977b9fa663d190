"""Workers, slots and resources of each worker, from the sizes that a batch system is asked for."""

from __future__ import annotations

from typing import Any

import msgspec

from mpijob.formats.convert.header import units
from mpijob.model import Resources
from mpijob.model.spec.quantity import NONE

_MOST_GUESSED_SLOTS = 8


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The requested sizes, as far as they are stated; memory in our units."""

    nodes: int | None = None
    ranks: int | None = None
    per_node: int | None = None
    cores: int | None = None
    cores_per_node: int | None = None
    memory: str | None = None
    memory_per_core: str | None = None
    memory_per_gpu: str | None = None
    gpus_per_node: int | None = None
    gpus_per_rank: int | None = None
    gpus: int | None = None


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """Workers, slots and resources; `guessed` explains values that the source left open."""

    workers: int
    slots: int
    ranks: int | None
    cores: int
    resources: Resources
    guessed: str = ""

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of a job."""
        return {
            "workers": self.workers,
            "slots": self.slots,
            "ranks": self.ranks,
            "cores_per_rank": self.cores,
            "resources": self.resources,
        }


def shaped(asked: Asked) -> Shape:
    """Return the shape of the world: one worker for each node."""
    workers, slots, guessed = _layout(asked)
    room = workers * slots
    ranks = asked.ranks if asked.ranks is not None and asked.ranks != room else None
    cores = asked.cores or 1
    cpu = asked.cores_per_node or slots * cores
    gpu = _gpus(asked, workers, slots)
    memory = asked.memory
    if memory is None and asked.memory_per_core is not None:
        memory = units.times(asked.memory_per_core, cpu)
    if memory is None and asked.memory_per_gpu is not None and gpu:
        memory = units.times(asked.memory_per_gpu, gpu)
    fields: dict[str, Any] = {"cpu": str(cpu), "gpu": gpu, "memory": NONE if memory is None else memory}
    return Shape(
        workers=workers, slots=slots, ranks=ranks, cores=cores, resources=Resources(**fields), guessed=guessed
    )


def _layout(asked: Asked) -> tuple[int, int, str]:
    if asked.nodes is not None:
        ranks = asked.ranks or asked.nodes * (asked.per_node or 1)
        return asked.nodes, asked.per_node or -(-ranks // max(1, asked.nodes)), ""
    if asked.per_node is not None:
        return -(-(asked.ranks or asked.per_node) // max(1, asked.per_node)), asked.per_node, ""
    ranks = asked.ranks or 1
    # GPUs for each node, without a number of nodes: a second worker would double them.
    workers = 1 if asked.gpus_per_node else _spread(ranks)
    slots = -(-ranks // workers)
    guess = f"{ranks} ranks without a number of nodes become {workers} workers with {slots} slots each"
    return workers, slots, guess if workers > 1 else ""


def _spread(ranks: int) -> int:
    """Return the least number of workers with at most eight ranks each, equal ones if possible."""
    # Slurm places such tasks on any nodes; a job here needs a fixed number of workers.
    least = -(-ranks // _MOST_GUESSED_SLOTS)
    even = (count for count in range(least, min(ranks, least * 2) + 1) if ranks % count == 0)
    return next(even, least)


def _gpus(asked: Asked, workers: int, slots: int) -> int:
    if asked.gpus_per_node is not None:
        return asked.gpus_per_node
    if asked.gpus_per_rank is not None:
        return asked.gpus_per_rank * slots
    return -(-asked.gpus // workers) if asked.gpus else 0
