"""A Slurm cluster's facts for one user, and a job's layout on its nodes.

Facts that could not be read (without accounting, for example) are left out. The engine reads them, `admission/slurm`
decides on them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from mpijob.model.spec.amounts import Amounts
from mpijob.model.spec.job import Family, MPIJob
from mpijob.model.spec.quantity import UNLIMITED_BYTES, UNLIMITED_CORES

MIB = 1024**2


class Known(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Base class: frozen, keyword only."""


class Partition(Known, frozen=True):
    """A partition with its limits; None is no limit, an empty list of names allows all."""

    name: str
    default: bool = False
    state: str = "UP"
    nodes: int = 0
    cpus: int = 0
    max_seconds: float | None = None
    default_seconds: float | None = None
    max_nodes: int | None = None
    min_nodes: int = 0
    max_memory_mib: int | None = None
    accounts: tuple[str, ...] = ()
    denied_accounts: tuple[str, ...] = ()
    qos: tuple[str, ...] = ()
    denied_qos: tuple[str, ...] = ()
    whole_nodes: bool = False


class NodeRoom(Known, frozen=True):
    """One node: its capacity, what is free, and whether it accepts pods."""

    name: str
    cpus: int
    memory_mib: int
    gpus: int = 0
    free_cpus: int = 0
    free_memory_mib: int = 0
    free_gpus: int = 0
    features: tuple[str, ...] = ()
    usable: bool = True


class Limit(Known, frozen=True):
    """Limits of a QOS or an account: for one job, and for all running jobs together (`group_`)."""

    owner: str
    cpus: int | None = None
    nodes: int | None = None
    memory_mib: int | None = None
    gpus: int | None = None
    seconds: float | None = None
    jobs: int | None = None
    submitted: int | None = None
    group_cpus: int | None = None
    group_nodes: int | None = None
    group_memory_mib: int | None = None
    group_gpus: int | None = None
    priority: int = 0


class SlurmFacts(Known, frozen=True):
    """Facts of a Slurm cluster for one job: its partition, its limits, and suitable nodes.

    `mpi` are the launch plugins of srun. `accounts` and `qos` are those of the user; both are empty without
    accounting.
    """

    cluster: str = ""
    version: str = ""
    partition: Partition | None = None
    partitions: tuple[str, ...] = ()
    account: str = ""
    accounts: tuple[str, ...] = ()
    qos: str = ""
    all_qos: tuple[str, ...] = ()
    limits: tuple[Limit, ...] = ()
    nodes: tuple[NodeRoom, ...] = ()
    mpi: tuple[str, ...] = ()
    requeue_seconds: float = 120.0
    kill_wait_seconds: float = 30.0
    unread: tuple[str, ...] = ()

    @property
    def max_seconds(self) -> float | None:
        """The longest run time that partition, account and QOS allow; None without a limit."""
        partition = self.partition.max_seconds if self.partition else None
        known = (partition, *(limit.seconds for limit in self.limits))
        return min((seconds for seconds in known if seconds is not None), default=None)

    @property
    def capacity(self) -> Amounts:
        """The total of all nodes."""
        return _sum((node.cpus, node.memory_mib, node.gpus) for node in self.nodes)

    @property
    def free(self) -> Amounts:
        """What is free on the nodes that accept jobs."""
        usable = (node for node in self.nodes if node.usable)
        return _sum((node.free_cpus, node.free_memory_mib, node.free_gpus) for node in usable)


def _sum(parts: Iterable[tuple[int, int, int]]) -> Amounts:
    cpus, memory_mib, gpus = map(sum, zip((0, 0, 0), *parts, strict=True))
    return Amounts(float(cpus), memory_mib * MIB, gpus)


class Layout(Known, frozen=True):
    """A job's layout: workers on each node, with tasks, CPUs, memory and GPUs of each node."""

    nodes: int
    workers_per_node: int
    tasks_per_node: int
    cpus_per_task: int
    memory_mib: int | None
    gpus: int

    @property
    def cpus_per_node(self) -> int:
        """CPUs that the job uses of each node."""
        return self.tasks_per_node * self.cpus_per_task

    @property
    def needs(self) -> Amounts:
        """What the job uses of all its nodes together."""
        return _sum([(self.cpus_per_node, self.memory_mib or 0, self.gpus)] * self.nodes)


def layout(job: MPIJob, nodes: tuple[NodeRoom, ...]) -> Layout:
    """Return how a job is laid out: a node for each worker; several workers a node where there are too few nodes.

    >>> job = MPIJob(name="solve", workers=8, slots=2)
    >>> layout(job, (NodeRoom(name="n1", cpus=8, memory_mib=8192),) * 4).workers_per_node
    2
    """
    able = [node for node in nodes if node.usable] or list(nodes)
    each = 1
    if able and len(able) < job.workers and job.elastic is None and job.mpi is not Family.CUSTOM:
        wanted = math.ceil(job.workers / len(able))
        fits = [node for node in able if _holds(node, _with(job, wanted))]
        each = wanted if len(fits) * wanted >= job.workers else 1
    return _with(job, each)


def layouts(job: MPIJob, nodes: tuple[NodeRoom, ...]) -> tuple[Layout, ...]:
    """Return the layout of each part of a job; with groups, each part is a component.

    Slurm gives a node to one component of a job only, so workers of a group share nodes if there are too few.
    """
    parts = [part.job for part in job.parts]
    if len(parts) == 1:
        return (layout(job, nodes),)
    able = [node for node in nodes if node.usable] or list(nodes)
    each = _workers_per_node([part.workers for part in parts], len(able))
    shared = tuple(_with(part, count) for part, count in zip(parts, each, strict=True))
    fits = all(sum(_holds(node, one) for node in able) >= one.nodes for one in shared)
    return shared if fits else tuple(_with(part, 1) for part in parts)


def _workers_per_node(workers: list[int], nodes: int) -> list[int]:
    """Return the workers on each node by component: one, or more, increased evenly until the nodes suffice."""
    each = [1] * len(workers)
    while 0 < nodes < sum(count // many for count, many in zip(workers, each, strict=True)):
        larger = [at for at, count in enumerate(workers) if each[at] < count]
        if not larger:
            break
        at = max(larger, key=lambda one: workers[one] // each[one])
        each[at] = next(many for many in range(each[at] + 1, workers[at] + 1) if workers[at] % many == 0)
    return each


def _with(job: MPIJob, each: int) -> Layout:
    cores = job.resources.cores
    wanted = job.cores_per_rank * job.slots if cores == UNLIMITED_CORES else cores
    memory = job.resources.memory_bytes
    return Layout(
        nodes=math.ceil(job.workers / each),
        workers_per_node=each,
        tasks_per_node=job.slots * each,
        cpus_per_task=max(job.cores_per_rank, math.ceil(wanted / job.slots - 1e-9), 1),
        memory_mib=None if memory >= UNLIMITED_BYTES else math.ceil(memory / MIB) * each,
        gpus=job.resources.gpu * each,
    )


def _holds(node: NodeRoom, one: Layout) -> bool:
    return (
        node.cpus >= one.cpus_per_node and node.memory_mib >= (one.memory_mib or 0) and node.gpus >= one.gpus
    )


def holding(nodes: tuple[NodeRoom, ...], one: Layout, *, now: bool = False) -> int:
    """Return how many nodes could run their part of a job, `now` or when they are idle."""
    if not now:
        return sum(node.usable and _holds(node, one) for node in nodes)
    free = (
        msgspec.structs.replace(
            node, cpus=node.free_cpus, memory_mib=node.free_memory_mib, gpus=node.free_gpus
        )
        for node in nodes
        if node.usable
    )
    return sum(_holds(node, one) for node in free)
