"""A gang of eight by Kueue: from submitting until every worker runs, against the same pods one by one.

The single pods ask for the same image and the same room and belong to no job. What the job takes without a queue
is told beside it: so one sees what is the gang's share and what the engine's.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.cluster.places import Place, place, until
from bench.line import Line, at_most, bounded
from bench.places import Options
from bench.timing import interleaved, median
from mpijob import Resources
from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.resources import Kind

WORKERS = 8
BOUND_SECONDS = 30.0
ROOM = Resources(cpu="10m", memory="64Mi")
_FLAVOR = Kind(resources.KUEUE_API, "ResourceFlavor", "resourceflavors", namespaced=False)
_number = itertools.count()


def measure(options: Options) -> Iterator[Line]:
    """Yield the time of a gang, and what it adds to single pods."""
    with place("gang") as there, _queue(there) as queue:
        found = interleaved(
            options.rounds(5),
            {
                "gang": lambda: _job(there, queue),
                "job": lambda: _job(there, ""),
                "pods": lambda: _pods(there),
            },
        )
    seconds = {name: median(values) for name, values in found.items()}
    yield from lines(seconds["gang"], seconds["pods"], seconds["job"], max(found["gang"]))


def lines(gang: float, pods: float, job: float, worst: float) -> Iterator[Line]:
    """Yield what is asked of a gang that took so long, pods that did, and a job without a queue."""
    note = f"worst {worst:.1f} s; the same job without a queue {job:.1f} s"
    title = f"gang: {WORKERS} workers of one gang, submit to all Running"
    rows = ("SC-014", "D-gang")
    yield bounded(title, "s", gang, BOUND_SECONDS, note, rows)
    note = f"the ratio is the difference; {WORKERS} pods of no job {pods:.1f} s"
    title = f"gang: added to {WORKERS} single pods"
    yield Line(title, "s", gang, pods, gang - pods, at_most(BOUND_SECONDS), note=note, rows=("C-gang",))


def _job(there: Place, queue: str) -> float:
    name = f"gang-{next(_number)}"
    job = there.small_job(name, WORKERS, "sleep", "600", queue=queue, resources=ROOM, launcher=ROOM)
    start = time.monotonic()
    there.client.submit(job)
    until(lambda: _running(there, "-node-") == WORKERS, f"{name}'s workers")
    taken = time.monotonic() - start
    there.remove(name)
    there.cleared()
    return taken


def _pods(there: Place) -> float:
    names = [f"single-{next(_number)}-{number}" for number in range(WORKERS)]
    pods = resources.POD.path(there.namespace)
    start = time.monotonic()
    for name in names:
        there.api.create(pods, _pod(there, name))
    until(lambda: _running(there, "single-") == WORKERS, "the single pods")
    taken = time.monotonic() - start
    for name in names:
        there.api.delete(resources.POD.path(there.namespace, name), grace_seconds=0)
    there.cleared()
    return taken


def _running(there: Place, part: str) -> int:
    pods = there.api.list(resources.POD.path(there.namespace)).items
    return sum(part in pod["metadata"]["name"] and pod["status"].get("phase") == "Running" for pod in pods)


def _pod(there: Place, name: str) -> dict[str, Any]:
    room = {"cpu": str(ROOM.cpu), "memory": str(ROOM.memory)}
    container = {
        "name": "main", "image": there.image, "command": ["sleep", "600"],
        "resources": {"requests": room, "limits": room},
    }  # fmt: skip
    spec = {
        "containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
        "nodeSelector": dict(there.placement.node_selector),
    }  # fmt: skip
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


@contextmanager
def _queue(there: Place) -> Iterator[str]:
    """Make a queue with room for one gang, and take it away again."""
    name = there.namespace
    amounts = [{"name": "cpu", "nominalQuota": "1"}, {"name": "memory", "nominalQuota": "4Gi"}]
    group = {"coveredResources": ["cpu", "memory"], "flavors": [{"name": name, "resources": amounts}]}
    made: tuple[tuple[Kind, str, str, dict[str, Any]], ...] = (
        (_FLAVOR, "", name, {}),
        (resources.CLUSTER_QUEUE, "", name, {"spec": {"namespaceSelector": {}, "resourceGroups": [group]}}),
        (resources.LOCAL_QUEUE, there.namespace, "own", {"spec": {"clusterQueue": name}}),
    )
    for kind, namespace, called, more in made:
        document = {"apiVersion": kind.api, "kind": kind.name, "metadata": {"name": called}, **more}
        there.api.create(kind.path(namespace), document)
    try:
        yield "own"
    finally:
        for kind, namespace, called, _ in reversed(made):
            there.api.delete(kind.path(namespace, called))
