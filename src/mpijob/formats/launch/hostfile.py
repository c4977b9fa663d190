"""Which ranks each worker gets, and the hostfile that says so, in each MPI family's own form."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mpijob.model import Family, Launch, MPIJob, PlannedWorker


def text(family: Family, workers: Iterable[PlannedWorker], launch: Launch) -> str:
    """Return the hostfile's text in the family's own form."""
    if family is Family.CUSTOM and launch.custom is not None:
        form = launch.custom.host_line
    else:
        form = "{worker} slots={slots}" if family is Family.OPENMPI else "{worker}:{slots}"
    return "".join(form.format(worker=worker.name, slots=worker.slots) + "\n" for worker in workers)


def slots(workers: Iterable[PlannedWorker]) -> str:
    """Return the workers as launchers that are no MPI's read them: horovodrun, deepspeed."""
    return "".join(f"{worker.name} slots={worker.slots}\n" for worker in workers)


def discovery_script(workers: Iterable[PlannedWorker]) -> str:
    """Return the program that prints the workers, as the MPI Operator writes it, for a place where none come or go."""
    return "#!/bin/sh\n" + "".join(f"echo {worker.name}\n" for worker in workers)


def place_ranks(job: MPIJob, names: Sequence[str]) -> tuple[PlannedWorker, ...]:
    """Return the workers with the ranks that the family will give them.

    Ranks fill one worker's slots before the next, or go round (`map_by: node`). Another mapping, or a
    rankfile, is the library's own business: then the ranks are left open and the census only counts.
    """
    ranks: list[list[int]] = [[] for _ in names]
    mapping = "rankfile" if job.launch.rankfile else job.launch.map_by or "slot"
    if mapping in ("slot", "node"):
        for rank in range(job.world):
            index = rank // job.slots if mapping == "slot" else rank
            ranks[index % len(names)].append(rank)
    return tuple(
        PlannedWorker(index=index, name=name, slots=job.slots, ranks=tuple(ranks[index]))
        for index, name in enumerate(names)
    )
