"""How much a job needs, and its largest size that fits into given resources: arithmetic only."""

from __future__ import annotations

import math
from collections.abc import Iterator
from enum import StrEnum

import msgspec

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
    return worker_needs(job).times(job.workers).plus(requests_of(job.launcher))


def worker_needs(job: MPIJob) -> Amounts:
    """Return what one worker needs."""
    return requests_of(job.resources)


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
    """Return the largest number of workers of this size that fits, together with the launcher."""
    return largest_worker_count(job, by_resource(available))


def largest_worker_count(job: MPIJob, available: dict[Resource, float]) -> int:
    """Return the same for resources that may be infinite."""
    worker, launcher = requests_of(job.resources), requests_of(job.launcher)
    counts = [
        _workers_that_fit(amount(worker, resource), amount(launcher, resource), available[resource])
        for resource in Resource
    ]
    fewest = min(counts)
    return job.workers if math.isinf(fewest) else int(fewest)


def _workers_that_fit(worker: float, launcher: float, available: float) -> float:
    if launcher > available + 1e-9:
        return 0
    return (
        math.floor((available - launcher) / worker + 1e-9)
        if worker and not math.isinf(available)
        else NO_LIMIT
    )


def format_with_name(resource: Resource, number: float) -> str:
    """Format an amount for messages: `4 GPUs`, `1 GPU`, `16 GiB of memory`, `8 CPU cores`."""
    if resource is Resource.MEMORY:
        return f"{as_bytes(number)} of memory"
    return f"{as_count(number)} {resource.value[:-1] if number == 1 else resource.value}"


def format_amount(resource: Resource, number: float) -> str:
    """Format an amount without its name: `4`, `16 GiB`."""
    return as_bytes(number) if resource is Resource.MEMORY else as_count(number)
