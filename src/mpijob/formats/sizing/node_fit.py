"""Which nodes of a cluster accept a worker, and how many workers each has capacity for.

It applies the scheduler's rules that a job can influence: readiness, taints, node selector, required node affinity,
excluded nodes, and allocatable less requested resources. It is an estimate: the scheduler has more rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from mpijob.formats.kubernetes import placement
from mpijob.formats.kubernetes.metadata.well_known import Document, Shape
from mpijob.formats.sizing import resource_requests
from mpijob.model import MPIJob, Role
from mpijob.model.platform.cluster import Ask, NodeCapacity

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
# Labels and annotations of nodes in a pool that may be scaled up.
_AUTOSCALED = (
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
    "karpenter.sh/nodepool",
    "machine.openshift.io/machine",
    "cluster.x-k8s.io/machine",
)
# Kubernetes sets these while a node starts or has problems, and removes them later.
_PASSING_TAINTS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
_CORDONED = "node.kubernetes.io/unschedulable"
_ROUNDING = 1e-9


class Machine(msgspec.Struct, frozen=True):
    """One node: its allocatable resources, and what is free of them (nothing while it is not ready)."""

    name: str
    whole: Mapping[str, float]
    free: Mapping[str, float]
    ready: bool = True


class Count(msgspec.Struct, frozen=True):
    """The nodes that accept the job's pods, and why the others do not."""

    usable: tuple[Machine, ...]
    all: int
    passed_over: Mapping[str, int]


def count(nodes: Iterable[Document], pods: Iterable[Document], job: MPIJob) -> Count:
    """Return the nodes that accept a worker, with what is free on each."""
    held = _held(pods)
    usable, reasons, number = [], Counter[str](), 0
    wanted = placement.pod_fields(job, Shape(), Role.WORKER)
    for node in nodes:
        number += 1
        if reason := _refused(node, wanted):
            reasons[reason] += 1
            continue
        name = node["metadata"]["name"]
        whole = {key: resource_requests.number(amount) for key, amount in _allocatable(node).items()}
        holds = held.get(name, {})
        free = {key: max(0.0, amount - holds.get(key, 0.0)) for key, amount in whole.items()}
        ready = _ready(node)
        usable.append(Machine(name, whole, free if ready else {}, ready))
        reasons.update([] if ready else ["not ready"])
    return Count(tuple(usable), number, dict(reasons))


def node_capacity(counts: Sequence[Count], asks: Iterable[Ask], *, grows: bool) -> NodeCapacity:
    """Return how many workers could start now beside the launcher, and how many if nothing else ran.

    `counts` are the nodes for each kind of worker; of those, the kind with the fewest nodes is reported.
    """
    asked = [*asks]
    workers = [ask for ask in asked if ask.role == Role.WORKER.value]
    launcher = next((ask.requests for ask in asked if ask.role == Role.LAUNCHER.value), {})
    wanted = [
        Wanted(frozenset(node.name for node in counted.usable), ask.requests, ask.count)
        for counted, ask in zip(counts, workers, strict=False)
    ]
    if len(wanted) > 1 and not workers[0].group:
        # Only the number of workers without a group can change: they are placed last.
        wanted.append(wanted.pop(0))
    machines = {node.name: node for counted in counts for node in counted.usable}
    fewest = min(counts, key=lambda counted: len(counted.usable))
    ready = sum(node.ready for node in fewest.usable)
    names = {"cpu", "memory", *(name for ask in workers for name in ask.requests)}
    return NodeCapacity(
        now=_fit({name: dict(one.free) for name, one in machines.items()}, wanted, launcher),
        ever=_fit({name: dict(one.whole) for name, one in machines.items()}, wanted, launcher),
        machines=fewest.all,
        usable=ready,
        unready=len(fewest.usable) - ready,
        passed_over=fewest.passed_over,
        largest={
            name: max((machine.whole.get(name, 0.0) for machine in machines.values()), default=0.0)
            for name in names
        },
        grows=grows,
    )


def grows(nodes: Iterable[Document], served: Iterable[str]) -> bool:
    """Return whether nodes may be added automatically: then too few nodes are no reason for a refusal."""
    if any(api.startswith(("karpenter.sh/", "autoscaling.openshift.io/")) for api in served):
        return True
    return any(key in marks(node) for node in nodes for key in _AUTOSCALED)


def marks(node: Document) -> dict[str, str]:
    """Return a node's labels and annotations."""
    metadata = node["metadata"]
    return (metadata.get("labels") or {}) | (metadata.get("annotations") or {})


def _held(pods: Iterable[Document]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for pod in pods:
        name = (pod.get("spec") or {}).get("nodeName")
        if not name or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            continue
        here = found.setdefault(name, {})
        here["pods"] = here.get("pods", 0.0) + 1
        for key, amount in resource_requests.requested(pod).items():
            here[key] = here.get(key, 0.0) + amount
    return found


def _allocatable(node: Document) -> Mapping[str, Any]:
    return (node.get("status") or {}).get("allocatable") or {}


class Wanted(NamedTuple):
    """Equal workers: the nodes that accept them, the requests of each, and their number."""

    usable: frozenset[str]
    pod: Mapping[str, float]
    number: int


def _fit(rooms: dict[str, dict[str, float]], wanted: Sequence[Wanted], launcher: Mapping[str, float]) -> int:
    """Return how many workers fit: of all kinds but the last as many as requested, of the last as many as possible."""
    *groups, last = wanted
    placed = sum(_place(rooms, group) for group in groups)
    if placed < sum(group.number for group in groups):
        return placed
    return placed + _fit_last(rooms, last, launcher)


def _place(rooms: dict[str, dict[str, float]], wanted: Wanted) -> int:
    """Return how many workers of a kind fit, placed on the nodes with the least capacity for them first."""
    for number in range(wanted.number):
        able = {name: times for name in wanted.usable if (times := _times(rooms[name], wanted.pod))}
        if not able:
            return number
        name = min(able, key=lambda one: (able[one], one))
        rooms[name] = _less(rooms[name], wanted.pod)
    return wanted.number


def _fit_last(rooms: dict[str, dict[str, float]], wanted: Wanted, launcher: Mapping[str, float]) -> int:
    """Return how many workers fit with the launcher where it costs least; 0 if the launcher does not fit."""
    counts = {name: _times(rooms[name], wanted.pod) for name in wanted.usable}
    best = -1
    for name, one in rooms.items():
        if not _times(one, launcher):
            continue
        less = _times(_less(one, launcher), wanted.pod) if name in counts else 0
        best = max(best, sum(counts.values()) - counts.get(name, 0) + less)
    return max(best, 0)


def _less(node_capacity: Mapping[str, float], pod: Mapping[str, float]) -> dict[str, float]:
    return {key: amount - pod.get(key, 0.0) - (key == "pods") for key, amount in node_capacity.items()}


def _times(node_capacity: Mapping[str, float], pod: Mapping[str, float]) -> int:
    wanted = {**pod, "pods": 1.0}
    fits = [
        (node_capacity.get(key, 0.0) + _ROUNDING) // amount for key, amount in wanted.items() if amount > 0
    ]
    return max(0, int(min(fits)))


def _refused(node: Document, wanted: Document) -> str:
    """Return why a node accepts no worker of this job, "" if it does."""
    spec, labels = node.get("spec") or {}, node["metadata"].get("labels") or {}
    for taint in _lasting(node):
        if not _tolerated(taint, wanted):
            return f"tainted {taint.get('key', '')}"
    if spec.get("unschedulable"):
        return "closed to new pods"
    selector = wanted.get("nodeSelector") or {}
    if any(labels.get(key) != value for key, value in selector.items()):
        return "not selected by placement.node_selector"
    terms = (((wanted.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED) or {}).get(
        "nodeSelectorTerms"
    )
    if terms and not any(_chosen(term, node) for term in terms):
        return "excluded, or not matched by placement.affinity"
    return ""


def _taints(node: Document) -> list[Mapping[str, Any]]:
    taints = (node.get("spec") or {}).get("taints") or ()
    return [taint for taint in taints if taint.get("effect") in ("NoSchedule", "NoExecute")]


def _lasting(node: Document) -> list[Mapping[str, Any]]:
    return [taint for taint in _taints(node) if not _passing(taint)]


def _passing(taint: Mapping[str, Any]) -> bool:
    key = taint.get("key") or ""
    return key.startswith(_PASSING_TAINTS) and key != _CORDONED


def _ready(node: Document) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = any(
        condition.get("type") == "Ready" and condition.get("status") == "True" for condition in conditions
    )
    return ready and not any(_passing(taint) for taint in _taints(node))


def _tolerated(taint: Mapping[str, Any], wanted: Document) -> bool:
    return any(_tolerates(toleration, taint) for toleration in wanted.get("tolerations") or ())


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("operator") == "Exists":
        return not toleration.get("key") or toleration["key"] == taint.get("key")
    same = toleration.get("key") == taint.get("key")
    return same and (toleration.get("value") or "") == (taint.get("value") or "")


def _chosen(term: Mapping[str, Any], node: Document) -> bool:
    labels = node["metadata"].get("labels") or {}
    fields = {"metadata.name": node["metadata"]["name"]}
    rules = [(expression, labels) for expression in term.get("matchExpressions") or ()]
    rules += [(field, fields) for field in term.get("matchFields") or ()]
    return bool(rules) and all(holds(rule, values) for rule, values in rules)


def holds(rule: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, values = str(rule.get("key", "")), rule.get("values") or ()
    match rule.get("operator"):
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case "Gt" | "Lt" as order:
            return _compared(str(order), labels.get(key, ""), str(values[0]) if values else "")
    return False


def _compared(order: str, there: str, bound: str) -> bool:
    try:
        return int(there) > int(bound) if order == "Gt" else int(there) < int(bound)
    except ValueError:
        return False
