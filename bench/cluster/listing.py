"""`mpijob list` (first page) against `kubectl get trainjobs`, and the memory of a client that sees them all."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack

from bench.cluster.crowd import fill
from bench.cluster.places import Place, place
from bench.line import Line, at_most, compared
from bench.places import Options
from bench.timing import Cost, command, median

FEW, MANY, FEWER = 100, 5000, 1000
LIMIT_MB = 100
SIDES = ("ours", "kubectl")
_ALL = """
import sys
from mpijob import Client
watched = Client().watch()
states = [next(watched) for _ in range(int(sys.argv[1]))]
print(len(states), flush=True)
import os
os._exit(0)
"""


def measure(options: Options) -> Iterator[Line]:
    """Yield a line for each number of jobs, then the memory at the larger one."""
    many = FEWER if options.quick else MANY
    with ExitStack() as stack:
        places = {jobs: stack.enter_context(place(f"list-{jobs}")) for jobs in (FEW, many)}
        for jobs, there in places.items():
            fill(there, jobs)
            yield _line(jobs, _costs(there, options.rounds(21 if jobs == FEW else 9)))
        yield from _memory(places[many], many)


def _line(jobs: int, costs: dict[str, list[Cost]]) -> Line:
    wall = {side: median([cost.wall for cost in costs[side]]) * 1e3 for side in SIDES}
    cpu = {side: median([cost.cpu for cost in costs[side]]) * 1e3 for side in SIDES}
    note = (
        f"wall; CPU {cpu['ours']:.0f} and {cpu['kubectl']:.0f} ms, ratio {cpu['ours'] / cpu['kubectl']:.2f}"
    )
    title = f"list: {jobs} jobs against kubectl get trainjobs"
    return compared(title, "ms", wall["ours"], wall["kubectl"], at_most(1.0), note=note)


def _costs(there: Place, rounds: int) -> dict[str, list[Cost]]:
    lines = {
        "ours": (there.mpijob, "list"),
        "kubectl": (there.kubectl, "get", "trainjobs", "--namespace", there.namespace),
    }
    costs: dict[str, list[Cost]] = {side: [] for side in SIDES}
    for number in range(rounds + 1):
        found = {side: command(lines[side], there.environ) for side in SIDES}
        for side in SIDES:
            costs[side] += [found[side]] if number else []  # the first round fills caches
    return costs


def _memory(there: Place, jobs: int) -> Iterator[Line]:
    lines = {
        "mpijob list": (there.mpijob, "list"),
        "a client that watches all": (sys.executable, "-c", _ALL, str(jobs)),
    }
    kubectl = command((there.kubectl, "get", "trainjobs", "--namespace", there.namespace), there.environ)
    for what, line in lines.items():
        megabytes = command(line, there.environ).peak_bytes / 1e6
        note = f"kubectl get trainjobs {kubectl.peak_bytes / 1e6:.0f} MB"
        yield compared(f"memory: {what}, {jobs} jobs", "MB", megabytes, LIMIT_MB, at_most(1), note=note)
