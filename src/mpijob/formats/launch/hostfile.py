"""The ranks of each worker, and the hostfile in each MPI family's form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from mpijob.model import Family, Launch, MPIJob, PlannedWorker


def text(family: Family, workers: Iterable[PlannedWorker], launch: Launch) -> str:
    if family is Family.CUSTOM and launch.custom is not None:
        form = launch.custom.host_line
    else:
        form = "{worker} slots={slots}" if family is Family.OPENMPI else "{worker}:{slots}"
    return "".join(form.format(worker=worker.name, slots=worker.slots) + "\n" for worker in workers)


def slots(workers: Iterable[PlannedWorker]) -> str:
    """Return the hostfile for launchers that are not part of an MPI: horovodrun, deepspeed."""
    return "".join(f"{worker.name} slots={worker.slots}\n" for worker in workers)


def discovery_script(workers: Iterable[PlannedWorker]) -> str:
    """Return the program that prints the workers, like the MPI Operator's, for engines with fixed workers."""
    return "#!/bin/sh\n" + "".join(f"echo {worker.name}\n" for worker in workers)


def place_ranks(job: MPIJob, names: Sequence[str]) -> tuple[PlannedWorker, ...]:
    """Return the workers with their ranks; without ranks for mappings that only the MPI library knows.

    Ranks fill one worker's slots before the next, or take turns (`map_by: node`).
    """
    parts = [part for part in job.parts for _ in range(part.job.workers if job.groups else len(names))]
    placed, before = [], 0
    total, counts_slots = _round(job, len(names))
    for index, (name, part) in enumerate(zip(names, parts, strict=True)):
        count = part.job.slots if counts_slots else 1
        ranks = _ranks(before, count, total, job.world) if total else ()
        placed.append(PlannedWorker(index, name, part.job.slots, tuple(ranks), part.group))
        before += count
    return tuple(placed)


def rank_counts(job: MPIJob) -> tuple[tuple[int, int], ...]:
    """Return runs of equal workers as (ranks of each, number of workers); empty if the library decides."""
    # By runs rather than by worker: a manifest that was not written here may ask for a million workers.
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
    """Return the number of ranks after which the first worker gets ranks again (0: unknown), and whether ranks fill
    slots.
    """
    mapping = "rankfile" if job.launch.rankfile else job.launch.map_by or "slot"
    if mapping == "slot":
        return (job.total_slots if job.groups else workers * job.slots), True
    return (workers if mapping == "node" else 0), False


def _ranks(first: int, count: int, total: int, world: int) -> Iterator[int]:
    """Yield the ranks of a worker that takes `count` of each round, from rank `first` on."""
    for start in range(first, world, total):
        yield from range(start, min(start + count, world))
