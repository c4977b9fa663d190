"""MPI between pods against bare mpirun on the node: allreduce of 8 MB and of 8 bytes, two ranks, over TCP.

Bare means: one container without a network of its own, two ranks under the image's mpirun, with as many CPUs
as the two workers have together. Over TCP, because that is what two machines have, pods or not; what shared
memory gives two processes in one container is shown beside it, without a goal.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from bench.cluster.places import Place, place, until
from bench.line import Line, Unmeasured, at_least
from bench.places import PROGRAMS, Options
from bench.timing import median
from mpijob import Phase, Resources
from mpijob.backends.kubernetes.client import resources

CPU = 0.5  # for each rank
GOAL = at_least(0.85)
TCP = ("--mca", "btl", "tcp,self")
_number = itertools.count()


class Taken(NamedTuple):
    """Median seconds of one allreduce in one run."""

    large: float
    small: float


def measure(options: Options) -> Iterator[Line]:
    """Yield bandwidth and latency against both references."""
    times = ("10", "200") if options.quick else ("30", "1000")
    with place("bandwidth") as there:
        works: dict[str, Callable[[], Taken]] = {
            "pods": lambda: _in_pods(there, times),
            "bare": lambda: _bare(there, times, TCP),
            "shared": lambda: _bare(there, times, ()),
        }
        found: dict[str, list[Taken]] = {name: [] for name in works}
        for _ in range(options.rounds(5)):
            for name, work in works.items():
                found[name].append(work())
    yield from _lines(found, "bare", "bare mpirun on the node, TCP")
    yield from _lines(found, "shared", "bare mpirun on the node, shared memory")


def _lines(found: dict[str, list[Taken]], other: str, what: str) -> Iterator[Line]:
    goal = GOAL if other == "bare" else None
    large = {name: median([one.large for one in found[name]]) for name in ("pods", other)}
    small = {name: median([one.small for one in found[name]]) for name in ("pods", other)}
    speed = {name: 8e6 / seconds / 1e6 for name, seconds in large.items()}
    spread = [8e6 / one.large / 1e6 for one in found["pods"]]
    note = f"{len(spread)} runs, pods {min(spread):.0f} to {max(spread):.0f} MB/s"
    yield Line(f"bandwidth: allreduce of 8 MB between pods, against {what}", "MB/s", speed["pods"],
               speed[other], speed["pods"] / speed[other], goal, note=note,
               rows=("D-overhead",) if goal else ())  # fmt: skip
    yield Line(f"latency: allreduce of 8 bytes between pods, against {what}", "µs", small["pods"] * 1e6,
               small[other] * 1e6, small[other] / small["pods"], note="ratio of speeds")  # fmt: skip


def _program(times: Sequence[str]) -> tuple[str, ...]:
    return ("python3", "-c", (PROGRAMS / "allreduce.py").read_text(), *times)


def _in_pods(there: Place, times: Sequence[str]) -> Taken:
    room = Resources(cpu=f"{CPU * 1000:g}m", memory="256Mi")
    job = there.small_job(f"pods-{next(_number)}", 2, *_program(times), resources=room)
    handle = there.client.run(job, timeout=180)
    said = [line.text.decode() for line in handle.logs(ranks=(0,))]
    there.remove(handle.ref.name)
    there.cleared()
    return _taken(said)


def _bare(there: Place, times: Sequence[str], transport: Sequence[str]) -> Taken:
    name, path = f"bare-{next(_number)}", resources.POD.path(there.namespace)
    container = {
        "name": "node",
        "image": there.image,
        "command": ["mpirun", "-n", "2", "--oversubscribe", *transport, *_program(times)],
        "env": [{"name": "HOME", "value": "/tmp"}],
        "securityContext": {"runAsUser": 1000},
        "resources": {"limits": {"cpu": f"{2 * CPU:g}", "memory": "512Mi"}},
    }
    spec = {
        "hostNetwork": True,
        "restartPolicy": "Never",
        "containers": [container],
        "nodeSelector": dict(there.placement.node_selector),
    }
    there.api.create(path, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
    until(lambda: _phase(there, name) in (Phase.SUCCEEDED.value, Phase.FAILED.value), f"pod {name}")
    said = there.api.raw(resources.POD.path(there.namespace, name, "log")).decode(errors="replace")
    there.api.delete(resources.POD.path(there.namespace, name), grace_seconds=0)
    there.cleared()
    return _taken(said.splitlines())


def _phase(there: Place, name: str) -> str:
    return str(there.api.get(resources.POD.path(there.namespace, name))["status"]["phase"])


def _taken(lines: Sequence[str]) -> Taken:
    for line in lines:
        if line.startswith("{"):
            return Taken(**json.loads(line))
    raise Unmeasured(f"the allreduce program said {' '.join(lines)[-200:]!r}")
