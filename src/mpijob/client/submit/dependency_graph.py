"""Several jobs with dependencies: sorted, checked, then submitted one by one.

Engines wait for dependencies (`after` in the job), so that no client must stay. This module finds the order,
and refuses a cycle before anything is created.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from graphlib import CycleError, TopologicalSorter

from mpijob.errors import Finding, InvalidJob
from mpijob.model import MPIJob
from mpijob.model.spec.dependencies import names, parsed


def ordered(jobs: Iterable[MPIJob]) -> tuple[MPIJob, ...]:
    """Return the jobs in an order in which each follows its dependencies.

    >>> from mpijob import MPIJob
    >>> from mpijob.client.submit import dependency_graph
    >>> train = MPIJob(name="train", command=["python", "train.py"], after=["prepare"])
    >>> prepare = MPIJob(name="prepare", command=["python", "prepare.py"])
    >>> [job.name for job in dependency_graph.ordered([train, prepare])]
    ['prepare', 'train']
    """
    all_jobs = tuple(jobs)
    known = {job.name: job for job in all_jobs}
    if len(known) < len(all_jobs):
        every = [job.name for job in all_jobs]
        twice = next(name for name in every if every.count(name) > 1)
        raise _refused(f"two jobs have the name '{twice}'", "use a unique name for each")
    inside = {job.name: [name for name in names(job.after) if name in known] for job in all_jobs}
    try:
        return tuple(known[name] for name in TopologicalSorter(inside).static_order())
    except CycleError as error:
        circle = " → ".join(f"'{name}'" for name in error.args[1])
        raise _refused(f"dependency cycle: {circle}", "remove one of the dependencies") from error


def alone(job: MPIJob, others: Sequence[MPIJob]) -> MPIJob:
    """Return the job without dependencies on jobs of its graph that do not exist yet, so that it can be planned."""
    there = {other.name for other in others}
    return job.replace(after=tuple(entry for entry in job.after if parsed(entry).name not in there))


def _refused(message: str, hint: str) -> InvalidJob:
    return InvalidJob.of((Finding(code="BAD_GRAPH", field="after", message=message, hint=hint),), "the jobs")
