"""Allreduce inside our workers against bare mpiexec: bandwidth with 8 MB, latency with 8 bytes.

The reference has the same transport: one daemon per worker, the plan's own settings. What a user
gets from a plain `mpiexec -n 2` is shown beside it, without a goal.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

from bench import bare
from bench.line import Line, Unmeasured, at_least
from bench.places import PROGRAMS, Options, Place, families, place, small_job
from bench.timing import median, output
from mpijob import MPIJob, Resources

RANKS = 2
GOAL = at_least(0.97)
_number = itertools.count()


class Taken(NamedTuple):
    """Median seconds of one allreduce in one run."""

    large: float
    small: float


def measure(options: Options) -> Iterator[Line]:
    """Yield bandwidth and latency for every family found."""
    with place() as there:
        for family in families(there.client):
            yield from _family(there, family, options.rounds(9), quick=options.quick)


def _family(there: Place, family: str, rounds: int, *, quick: bool) -> Iterator[Line]:
    times = ("10", "500") if quick else ("30", "2000")
    first = _job(family, times)
    same, plain = bare.joined(there, first), bare.plain(there, first)
    works: dict[str, Callable[[], Taken]] = {
        "ours": lambda: _ours(there, _job(family, times)),
        "same": lambda: _taken(output(*same)),
        "plain": lambda: _taken(output(*plain)),
    }
    found: dict[str, list[Taken]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            found[name].append(work())
    yield from _lines(family, found)


def _lines(family: str, found: dict[str, list[Taken]]) -> Iterator[Line]:
    large = {name: median([taken.large for taken in runs]) for name, runs in found.items()}
    small = {name: median([taken.small for taken in runs]) for name, runs in found.items()}
    for name, what in (("same", "same transport"), ("plain", "plain mpiexec")):
        goal = GOAL if name == "same" else None
        speed = {side: 8e6 / seconds / 1e6 for side, seconds in large.items()}
        title = f"allreduce {{}}: {family}, {what}"
        yield Line(title.format("bandwidth"), "MB/s", speed["ours"], speed[name],
                   speed["ours"] / speed[name], goal, note=_spread([t.large for t in found["ours"]]))  # fmt: skip
        yield Line(title.format("latency"), "µs", small["ours"] * 1e6, small[name] * 1e6,
                   small[name] / small["ours"], goal, note=_spread([t.small for t in found["ours"]]))  # fmt: skip


def _spread(seconds: list[float]) -> str:
    return f"{len(seconds)} runs, ours {min(seconds) * 1e6:.3g} to {max(seconds) * 1e6:.3g} µs"


def _job(family: str, times: tuple[str, str]) -> MPIJob:
    program = (sys.executable, str(PROGRAMS / "allreduce.py"), *times)
    room = Resources(cpu="1", memory="1Gi")
    return small_job(f"allreduce-{next(_number)}", RANKS, *program, mpi=family, resources=room)


def _ours(there: Place, job: MPIJob) -> Taken:
    handle = there.client.run(job, timeout=120)
    return _taken("".join(line.text.decode() + "\n" for line in handle.logs(ranks=(0,))))


def _taken(text: str) -> Taken:
    for line in text.splitlines():
        if line.startswith("{"):
            return Taken(**json.loads(line))
    raise Unmeasured(f"the allreduce program said {text[-200:]!r}")
