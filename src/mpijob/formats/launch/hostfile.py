"""Which ranks each worker gets, and the hostfile that says so, in each MPI family's own form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

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
    parts = [part for part in job.parts for _ in range(part.job.workers if job.groups else len(names))]
    placed, before = [], 0
    total, counts_slots = _round(job, len(names))
    for index, (name, part) in enumerate(zip(names, parts, strict=True)):
        taken = part.job.slots if counts_slots else 1
        ranks = _ranks(before, taken, total, job.world) if total else ()
        placed.append(PlannedWorker(index, name, part.job.slots, tuple(ranks), part.group))
        before += taken
    return tuple(placed)


def rank_counts(job: MPIJob) -> tuple[tuple[int, int], ...]:
    """Return how many ranks workers have and how many workers in a row have so many; nothing where the library decides.

    It is as short for a million workers: what others wrote may have any number of them.
    """
    total, counts_slots = _round(job, job.workers)
    if total < 1 or any(part.job.slots < 1 for part in job.parts):
        return ()
    rounds, left = divmod(job.world, total)
    found: list[tuple[int, int]] = []
    for part in job.parts:
        each, workers = part.job.slots if counts_slots else 1, part.job.workers
        full = min(left // each, workers)
        partly = left - full * each if full < workers else 0
        found += [(rounds * each + each, full), (rounds * each + partly, 1 if partly else 0)]
        found.append((rounds * each, workers - full - (1 if partly else 0)))
        left -= full * each + partly
    return tuple((ranks, workers) for ranks, workers in found if workers)


def _round(job: MPIJob, workers: int) -> tuple[int, bool]:
    """Return after how many ranks the first worker has its turn again (0: unknown), and whether ranks fill slots."""
    mapping = "rankfile" if job.launch.rankfile else job.launch.map_by or "slot"
    if mapping == "slot":
        return (job.total_slots if job.groups else workers * job.slots), True
    return (workers if mapping == "node" else 0), False


def _ranks(first: int, count: int, total: int, world: int) -> Iterator[int]:
    """Yield the ranks of a worker that takes so many of each round, the first one of them included."""
    for start in range(first, world, total):
        yield from range(start, min(start + count, world))
