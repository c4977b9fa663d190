"""From the command to "created", many times: what nine in ten do not exceed, and the slowest."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from bench.cluster.places import Place, place
from bench.line import Line, at_most
from bench.places import Options
from bench.timing import command, median

TIMES = 24
MUST_SECONDS, GOAL_SECONDS = 5.0, 0.3
_number = itertools.count()


def measure(options: Options) -> Iterator[Line]:
    """Yield the bound of nine submissions in ten, and the slowest one."""
    with place("submit") as there:
        _create(there)  # the first time fills caches
        yield from lines([_create(there) for _ in range(options.rounds(TIMES))])


def lines(seconds: Sequence[float]) -> Iterator[Line]:
    """Yield what is asked of submissions that took so long; the ratio is the part of the bound that is used."""
    ordered = sorted(seconds)
    ninth = ordered[max(0, math.ceil(len(ordered) * 0.9) - 1)]
    goal, must = at_most(GOAL_SECONDS / MUST_SECONDS), at_most(1.0)
    note = f"{len(ordered)} times `mpijob create`, median {median(ordered):.2f} s; goal {GOAL_SECONDS:g} s"
    kinds = (("nine in ten", ninth, ("D-p90",)), ("the slowest", ordered[-1], ("NFR-002", "SC-008")))
    for words, value, rows in kinds:
        title = f"submit: command to created, {words}"
        yield Line(title, "s", value, MUST_SECONDS, value / MUST_SECONDS, goal, must, note, rows=rows)


def _create(there: Place) -> float:
    name = f"submit-{next(_number)}"
    size = (
        "--workers",
        "2",
        "--cpu",
        "10m",
        "--memory",
        "64Mi",
        "--launcher-cpu",
        "10m",
        "--launcher-memory",
        "64Mi",
    )
    taken = command((there.mpijob, "create", name, *size, "--", "true"), there.environ).wall
    there.remove(name)
    there.cleared()
    return taken
