"""From the command to MPI at work on eight workers: `mpijob create` against the same manifest by kubectl.

The end is the kubelet's time stamp of the first rank's line. Neither side counts its ranks first: what the
census takes is measured in `bench start`, and shown here beside it.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator

import msgspec

from bench.cluster.places import Place, place, until
from bench.line import Line, at_most, compared
from bench.places import Options
from bench.timing import command, interleaved, median
from mpijob import MPIJob, Resources

WORKERS = 8
SAY = ("echo", "here")
_number = itertools.count()


def measure(options: Options) -> Iterator[Line]:
    """Yield the line, and beside it what the census adds."""
    with place("start") as there:
        works: dict[str, Callable[[], float]] = {
            "kubectl": lambda: _by_kubectl(there),
            "ours": lambda: _by_us(there, "--no-census"),
            "census": lambda: _by_us(there),
        }
        found = interleaved(options.rounds(5), works)
        seconds = {side: median(found[side]) for side in works}
    spread = ", ".join(f"{side} {min(found[side]):.1f} to {max(found[side]):.1f}" for side in works)
    title = f"start: submit to MPI up, {WORKERS} workers"
    yield compared(
        f"{title}, against kubectl", "s", seconds["ours"], seconds["kubectl"], at_most(1.05), note=spread
    )
    yield compared(f"{title}, with the census", "s", seconds["census"], seconds["kubectl"])


def _job(there: Place, name: str) -> MPIJob:
    room = Resources(cpu="20m", memory="64Mi")
    return there.small_job(name, WORKERS, *SAY, census=False, resources=room, launcher=room)


def _by_us(there: Place, *flags: str) -> float:
    name = f"ours-{next(_number)}"
    job = _job(there, name)
    selected = tuple(
        word
        for key, value in job.placement.node_selector.items()
        for word in ("--node-selector", f"{key}={value}")
    )
    size = ("--workers", str(WORKERS), "--cpu", "20m", "--memory", "64Mi",
            "--launcher-cpu", "20m", "--launcher-memory", "64Mi")  # fmt: skip
    start = time.time()
    command((there.mpijob, "create", name, *size, *selected, *flags, "--", *SAY), there.environ)
    return _first_line(there, name) - start


def _by_kubectl(there: Place) -> float:
    name = f"kubectl-{next(_number)}"
    documents = [msgspec.to_builtins(one) for one in there.client.plan(_job(there, name)).documents]
    start = time.time()
    there.apply(*documents)
    return _first_line(there, name) - start


def _first_line(there: Place, name: str) -> float:
    """Return when the first rank spoke, then remove the job."""
    found: list[float] = []

    def spoken() -> bool:
        found[:] = [moment for moment, said in there.launcher_log(name) if said.endswith(SAY[1])]
        return bool(found)

    until(spoken, f"{name}'s first line")
    there.remove(name)
    there.cleared()
    return found[0]
