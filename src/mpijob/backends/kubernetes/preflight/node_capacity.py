"""How much room a cluster's machines have for one job; where nodes or pods cannot be read, nobody knows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api_errors import ApiError
from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.formats.sizing import node_fit
from mpijob.formats.sizing.node_fit import Count
from mpijob.model import Amounts, MPIJob
from mpijob.model.platform.cluster import Ask, NodeCapacity, QueueFacts
from mpijob.model.spec import quantity

if TYPE_CHECKING:
    from mpijob.backends.kubernetes.client.api import Api

# A longer list costs more time than the number of free cores is worth.
MOST_PODS = 3000
_NO_LIMIT = float(1 << 60)
_NOT_TOLD = (401, 403)
# Nodes of test clusters count GPUs that no container can see.
_FAKE = ("kwok.x-k8s.io/node", "mpijob.dev/no-devices")


class Measured:
    """What the machines that would take the job have together, and what is free of it."""

    def __init__(self, counts: Iterable[Count], job: MPIJob, *, pods_known: bool) -> None:
        machines = {one.name: one for counted in counts for one in counted.usable}.values()
        self.capacity = _sum((one.whole for one in machines), job)
        self.free = _sum((one.free for one in machines), job) if pods_known else self.capacity


def of(
    nodes: Sequence[Document],
    pods: Sequence[Document] | None,
    job: MPIJob,
    asks: Sequence[Ask],
    *,
    grows: bool,
) -> tuple[NodeCapacity, Measured]:
    """Return how many workers fit, now and ever; without pods only the latter is known and told for both."""
    counts = [node_fit.count(nodes, pods or (), part.job) for part in job.parts]
    return node_fit.node_capacity(counts, asks, grows=grows), Measured(
        counts, job, pods_known=pods is not None
    )


def of_queue(queue: QueueFacts, job: MPIJob) -> tuple[Amounts, Amounts] | None:
    """Return what the job's queue could give and what is free in it, in the flavour that has most for it."""
    if not queue.shares:
        return None
    scarce = job.gpu_kind if job.most_gpus else "cpu"
    # The flavor with most of the scarce resource: Kueue assigns one flavor to all resources of a group.
    best = max(queue.shares, key=lambda share: (share.resource == scarce, share.free, share.most))
    mine = [share for share in queue.shares if share.flavor == best.flavor]
    rest = [share for share in queue.shares if share.resource not in {one.resource for one in mine}]
    known = {share.resource: share for share in (*rest, *mine)}
    return (
        _amounts({name: share.most for name, share in known.items()}, job, _NO_LIMIT),
        _amounts({name: share.free for name, share in known.items()}, job, _NO_LIMIT),
    )


def lesser(one: Amounts, other: Amounts) -> Amounts:
    """Return what is there of both: a queue's quota is no machine, and machines are no quota."""
    return Amounts(
        min(one.cores, other.cores),
        min(one.memory_bytes, other.memory_bytes),
        min(one.gpus, other.gpus),
    )


def devices_are_real(nodes: Sequence[Document], job: MPIJob) -> bool:
    """Return whether a GPU that a machine counts is one that a rank can see; test machines only count them."""
    having = [node for node in nodes if _has(node, job.gpu_kind)]
    return not any(mark in node_fit.marks(node) for node in having for mark in _FAKE)


def devices(api: Api) -> frozenset[str] | None:
    """Return the names of everything that some node offers; None where the user may not list nodes."""
    try:
        nodes = api.list(resources.NODE.path()).items
    except ApiError as error:
        if error.status not in _NOT_TOLD:
            raise
        return None
    offered = ((node.get("status") or {}).get("allocatable") or {} for node in nodes)
    return frozenset(name for one in offered for name, amount in one.items() if quantity.parse(amount))


def _has(node: Document, resource: str) -> bool:
    return resource in ((node.get("status") or {}).get("allocatable") or {})


def _sum(rooms: Iterable[Mapping[str, float]], job: MPIJob) -> Amounts:
    total: dict[str, float] = {}
    for room in rooms:
        for name, amount in room.items():
            total[name] = total.get(name, 0.0) + amount
    return _amounts(total, job)


def _amounts(known: Mapping[str, float], job: MPIJob, otherwise: float = 0.0) -> Amounts:
    """`otherwise` is for what the queue does not count: that is not scarce, as far as the queue knows."""
    return Amounts(
        cores=min(_NO_LIMIT, known.get("cpu", otherwise)),
        memory_bytes=int(min(_NO_LIMIT, known.get("memory", otherwise))),
        gpus=int(min(_NO_LIMIT, known.get(job.gpu_kind, otherwise))),
    )
