"""A job's requests by the names that a cluster counts: resources, pods, objects.

They are read from the pod templates that will be sent (`pod_template`), so that they are what the API server sees.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from mpijob.formats.kubernetes import pod_template
from mpijob.formats.kubernetes.metadata.well_known import Document, Shape
from mpijob.model import MPIJob, Role
from mpijob.model.platform.cluster import Ask
from mpijob.model.spec.quantity import parse

_SERVERS_OWN = re.compile(r"([+-]?[0-9.]+)([nu]|[eE][+-]?[0-9]+)")
_TINY = {"n": 1e-9, "u": 1e-6}
# Objects that the engines create for one job, beside its pods.
_OBJECTS = {
    "trainjobs.trainer.kubeflow.org": {
        "trainjobs.trainer.kubeflow.org": 1,
        "trainingruntimes.trainer.kubeflow.org": 1,
        "jobsets.jobset.x-k8s.io": 1,
        "jobs.batch": 2,
        "services": 1,
        "secrets": 1,
        "configmaps": 2,
    },
    "mpijobs.kubeflow.org": {
        "mpijobs.kubeflow.org": 1,
        "jobs.batch": 1,
        "services": 1,
        "secrets": 1,
        "configmaps": 1,
    },
}


def pod_requests(job: MPIJob, shape: Shape | None = None) -> tuple[Ask, ...]:
    """Return the requests of one worker of each group, and of the launcher."""
    shape = shape or Shape()
    # Amounts do not depend on the image and on volumes, which may be missing or invalid here.
    plain = job.replace(image=job.image or "any", volumes=())
    workers = (
        _ask(Role.WORKER, pod_template.template(part.job, shape, Role.WORKER), part.group, part.job.workers)
        for part in plain.parts
    )
    return (*workers, _ask(Role.LAUNCHER, pod_template.template(plain, shape, Role.LAUNCHER)))


def quota_usage(job: MPIJob, engine: str, parts: Iterable[Ask]) -> dict[str, float]:
    """Return what the job adds to each line of a ResourceQuota.

    `engine` is the created kind in a quota's form: `trainjobs.trainer.kubeflow.org`.
    """
    found: dict[str, float] = {"pods": job.workers + 1.0, "count/pods": job.workers + 1.0}
    for part in parts:
        for prefix, amounts in (("requests", part.requests), ("limits", part.limits)):
            for name, amount in amounts.items():
                for line in _lines(prefix, name):
                    found[line] = found.get(line, 0.0) + amount * part.count
    for name, number in _OBJECTS.get(engine, {}).items():
        number += len(job.parts) - 1 if name == "jobs.batch" else 0
        found[f"count/{name}"] = float(number)
        if name in ("services", "secrets", "configmaps"):
            # The older form of the same line.
            found[name] = float(number)
    return found


def _lines(prefix: str, name: str) -> tuple[str, ...]:
    if prefix == "requests" and name in ("cpu", "memory"):
        return (f"requests.{name}", name)
    return (f"{prefix}.{name}",)


def _ask(role: Role, template: Document, group: str = "", count: int = 1) -> Ask:
    containers = template["spec"]["containers"]
    first = template["spec"].get("initContainers") or []
    return Ask(
        role=role.value,
        group=group,
        count=count,
        requests=_together(containers, first, "requests"),
        limits=_together(containers, first, "limits"),
    )


def _together(
    containers: Iterable[Mapping[str, Any]], first: Iterable[Mapping[str, Any]], what: str
) -> dict[str, float]:
    """Return a pod's amounts: the sum of its containers, or its largest init container if that is more."""
    found: dict[str, float] = {}
    for container in containers:
        for name, amount in amounts(container, what).items():
            found[name] = found.get(name, 0.0) + amount
    for one in first:
        for name, amount in amounts(one, what).items():
            found[name] = max(found.get(name, 0.0), amount)
    return found


def amounts(container: Mapping[str, Any], what: str) -> dict[str, float]:
    """Return a container's requests, or its limits, as numbers."""
    stated = (container.get("resources") or {}).get(what) or {}
    return {name: number(amount) for name, amount in stated.items()}


def number(amount: Any) -> float:
    """Return a quantity (`250m`, `1e3`, `17n`) as a number, 0 if it is malformed."""
    if own := _SERVERS_OWN.fullmatch(str(amount)):
        return float(own[1]) * _TINY[own[2]] if own[2] in _TINY else float(own[1] + own[2])
    try:
        return parse(amount)
    except ValueError:
        return 0.0


def requested(pod: Mapping[str, Any]) -> dict[str, float]:
    """Return the requests of any pod as the scheduler counts them."""
    spec = pod.get("spec") or {}
    first = spec.get("initContainers") or []
    # Sidecars (init containers with restartPolicy Always) run beside the containers.
    beside = [one for one in first if one.get("restartPolicy") == "Always"]
    before = [one for one in first if one.get("restartPolicy") != "Always"]
    found = _together([*(spec.get("containers") or []), *beside], before, "requests")
    for name, amount in (spec.get("overhead") or {}).items():
        found[name] = found.get(name, 0.0) + number(amount)
    return found
