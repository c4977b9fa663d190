"""The number of GPUs of a job's pods: all kinds, containers and templates.

`pod_reader` reads only the main containers, but limits apply to everything that runs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from mpijob.formats.kubernetes import trainjob
from mpijob.formats.kubernetes.metadata.well_known import CONTAINER, Document
from mpijob.formats.status.nested_fields import is_gpu
from mpijob.model.spec.quantity import parse

_LAUNCHER, _NODE = "launcher", "node"
_NO_WORKERS = (_LAUNCHER, "dataset-initializer", "model-initializer")


def count(document: Mapping[str, Any], runtime: Mapping[str, Any] | None, workers: int) -> tuple[int, int]:
    """Return the GPUs of one worker and of all pods; raise ValueError for a malformed amount."""
    pods = [*(_of_mpijob(document) if runtime is None else _of_trainjob(document, runtime, workers))]
    found = [(role, number, of_pod(spec)) for role, number, spec in pods]
    each = max((gpus for role, _, gpus in found if role not in _NO_WORKERS), default=0)
    return each, sum(number * gpus for _, number, gpus in found)


def of_pod(spec: Mapping[str, Any]) -> int:
    """Return the GPUs of a pod: the sum of its containers, or its largest init container if that is more."""
    first = spec.get("initContainers") or ()
    # Sidecars run beside the containers.
    beside = [one for one in first if one.get("restartPolicy") == "Always"]
    found: Counter[str] = Counter()
    for one in (*(spec.get("containers") or ()), *beside):
        found += _of(one)
    for one in first:
        found |= _of(one)
    return found.total()


def _of(container: Mapping[str, Any]) -> Counter[str]:
    resources = container.get("resources") or {}
    found: Counter[str] = Counter()
    for amounts in (resources.get("limits") or {}, resources.get("requests") or {}):
        found |= Counter({name: math.ceil(parse(amounts[name])) for name in amounts if is_gpu(name)})
    return found


def _of_mpijob(document: Mapping[str, Any]) -> Iterator[tuple[str, int, Mapping[str, Any]]]:
    for role, replica in (document["spec"].get("mpiReplicaSpecs") or {}).items():
        number = 1 if role.lower() == _LAUNCHER else int(replica.get("replicas") or 1)
        yield role.lower(), number, (replica.get("template") or {}).get("spec") or {}


def _of_trainjob(
    document: Mapping[str, Any], runtime: Mapping[str, Any], workers: int
) -> Iterator[tuple[str, int, Mapping[str, Any]]]:
    """Trainer gives a TrainJob's resources to the launcher, and to the workers where the launcher is one of them."""
    own = (document["spec"].get("trainer") or {}).get("resourcesPerNode")
    both = bool(runtime["spec"]["mlPolicy"]["mpi"].get("runLauncherAsNode"))
    jobs = {
        replicated_job["name"]: replicated_job["template"]["spec"]
        for replicated_job in runtime["spec"]["template"]["spec"]["replicatedJobs"]
    }
    others = sum(group.workers for group in trainjob.groups(runtime))
    for name, job in jobs.items():
        spec = job["template"].get("spec") or {}
        given = own is not None and (name == _LAUNCHER or (both and name == _NODE))
        number = int(job.get("parallelism") or 1)
        if name == _NODE:
            number = workers - others - (both and _LAUNCHER in jobs)
        yield name, number, _with(spec, own) if given else spec


def _with(spec: Mapping[str, Any], resources: Any) -> Document:
    containers = spec.get("containers") or ()
    return {
        **spec,
        "containers": [
            container | {"resources": resources} if container.get("name") == CONTAINER else container
            for container in containers
        ],
    }
