"""How much a job needs, and its largest size that fits into given resources: arithmetic only."""

from __future__ import annotations

import math
from collections.abc import Iterator
from enum import StrEnum

import msgspec

from mpijob.errors import Fix
from mpijob.model import Amounts, MPIJob, Quota, Resources
from mpijob.model.spec.quantity import as_bytes, as_count

NO_LIMIT = math.inf


class Resource(StrEnum):
    """The three resources that a job can be short of, scarcest first, named as in messages."""

    GPUS = "GPUs"
    MEMORY = "memory"
    CORES = "CPU cores"


class Shortage(msgspec.Struct, frozen=True):
    """A resource of which more is requested than available."""

    resource: Resource
    requested: float
    available: float

    @property
    def missing(self) -> float:
        """The missing amount."""
        return self.requested - self.available


def needs(job: MPIJob) -> Amounts:
    """Return what the launcher and all workers need together."""
    return job.asked


def requests_of(resources: Resources) -> Amounts:
    """Return what one worker, or the launcher, needs."""
    return resources.asked


def amount(amounts: Amounts, resource: Resource) -> float:
    """Return the amount of one resource."""
    return {
        Resource.GPUS: amounts.gpus,
        Resource.MEMORY: amounts.memory_bytes,
        Resource.CORES: amounts.cores,
    }[resource]


def limit(quota: Quota, resource: Resource) -> float:
    """Return a quota's limit for a resource; infinite if it has none."""
    found = {Resource.GPUS: quota.gpus, Resource.MEMORY: quota.memory_bytes, Resource.CORES: quota.cores}[
        resource
    ]
    return NO_LIMIT if found is None else found


def remaining(quota: Quota) -> dict[Resource, float]:
    """Return what is left of a quota."""
    return {
        resource: max(0.0, limit(quota, resource) - amount(quota.used, resource)) for resource in Resource
    }


def by_resource(amounts: Amounts) -> dict[Resource, float]:
    """Return amounts by resource."""
    return {resource: amount(amounts, resource) for resource in Resource}


def shortages(requested: Amounts, available: dict[Resource, float]) -> Iterator[Shortage]:
    """Yield the resources of which more is requested than available, scarcest first."""
    for resource in Resource:
        if amount(requested, resource) > available[resource] + 1e-9:
            yield Shortage(resource, amount(requested, resource), available[resource])


def max_workers(job: MPIJob, available: Amounts) -> int:
    """Return the largest number of workers that fits, together with the launcher."""
    return largest_worker_count(job, by_resource(available))


def largest_worker_count(job: MPIJob, available: dict[Resource, float]) -> int:
    """Return the same for resources that may be infinite; of groups, only the number of some workers changes."""
    part = job.resizable
    worker = requests_of(part.job.resources)
    others = needs(job).minus(worker.times(part.job.workers))
    counts = [
        workers_that_fit(amount(worker, resource), amount(others, resource), available[resource])
        for resource in Resource
    ]
    fewest = min(counts)
    return job.workers if math.isinf(fewest) else whole_size(job, int(fewest))


def whole_size(job: MPIJob, fits: int) -> int:
    """Return the size of a job with so many of the workers whose number may change; -1: the others do not fit."""
    part = job.resizable
    least = 1 if part.group or not job.groups else 0
    return job.workers - part.job.workers + fits if fits >= least else 0


def workers_that_fit(worker: float, others: float, available: float) -> float:
    """Return how many workers fit beside the others and the launcher; -1 where these do not."""
    if others > available + 1e-9:
        return -1
    return (
        math.floor((available - others) / worker + 1e-9) if worker and not math.isinf(available) else NO_LIMIT
    )


def size_hint(job: MPIJob, workers: int, rest: str = "") -> str:
    """Return the advice to use so many workers, or, with 0, that no number of them fits."""
    part = job.resizable
    where = f"in group '{part.group}'" if part.group else "in no group"
    if workers < 1 and job.groups:
        return f"fewer workers {where} do not help: reduce the resources of the groups"
    if workers < 1:
        size = f"cpu: {job.resources.cpu}, memory: {job.resources.memory}, gpu: {job.resources.gpu}"
        return f"not even 1 worker of this size fits: reduce resources (currently {size})"
    counted = f"use at most {workers} worker{'s' if workers > 1 else ''}"
    if job.groups:
        return f"{counted}, {workers - (job.workers - part.job.workers)} of them {where}{rest}"
    return f"{counted} of this size{rest}"


def size_fixes(job: MPIJob, workers: int, hint: str) -> tuple[Fix, ...]:
    """Return the fix by which a job gets so many workers; none where its groups alone have more."""
    part = job.resizable
    left = whole_size(job, workers - (job.workers - part.job.workers))
    return (Fix(hint, job.size_patch(workers)),) if left >= 1 else ()


def format_with_name(resource: Resource, number: float) -> str:
    """Format an amount for messages: `4 GPUs`, `1 GPU`, `16 GiB of memory`, `8 CPU cores`."""
    if resource is Resource.MEMORY:
        return f"{as_bytes(number)} of memory"
    return f"{as_count(number)} {resource.value[:-1] if number == 1 else resource.value}"


def format_amount(resource: Resource, number: float) -> str:
    """Format an amount without its name: `4`, `16 GiB`."""
    return as_bytes(number) if resource is Resource.MEMORY else as_count(number)
