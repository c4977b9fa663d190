"""Allreduce between our workers against plain mpiexec: bandwidth with 8 MB, latency with 8 bytes.

Every MPI that this machine has is measured, with 2 and with 4 ranks, each on a worker of its own.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

from bench import bare
from bench.line import Line, Unmeasured, at_least
from bench.places import PROGRAMS, Options, Place, installed, place, small_job
from bench.timing import median, output
from mpijob import MPIJob, Resources
from mpijob.errors import MpiJobError

RANKS = (2, 4)
GOAL = at_least(0.97)
_number = itertools.count()


class Taken(NamedTuple):
    """Median seconds of one allreduce in one run."""

    large: float
    small: float


def measure(options: Options) -> Iterator[Line]:
    """Yield bandwidth and latency for every installation found."""
    with place() as there:
        for name, family, with_it in installed(there):
            for ranks in RANKS:
                try:
                    yield from _at(name, family, with_it, ranks, options.rounds(9), quick=options.quick)
                except (Unmeasured, MpiJobError) as error:  # this Python's mpi4py may not know that library
                    yield Line(f"allreduce: {name}, {ranks} ranks", missing=str(error).splitlines()[0])


def _at(name: str, family: str, there: Place, ranks: int, rounds: int, *, quick: bool) -> Iterator[Line]:
    times = ("10", "500") if quick else ("30", "2000")
    plain = bare.plain(there, _job(family, ranks, times))
    works: dict[str, Callable[[], Taken]] = {
        "ours": lambda: _ours(there, _job(family, ranks, times)),
        "plain": lambda: _taken(output(*plain)),
    }
    found: dict[str, list[Taken]] = {side: [] for side in works}
    for _ in range(rounds):
        for side, work in works.items():
            found[side].append(work())
    large = {side: median([taken.large for taken in runs]) for side, runs in found.items()}
    small = {side: median([taken.small for taken in runs]) for side, runs in found.items()}
    speed = {side: 8e6 / seconds / 1e6 for side, seconds in large.items()}
    title = f"allreduce {{}}: {name}, {ranks} ranks"
    yield Line(title.format("bandwidth"), "MB/s", speed["ours"], speed["plain"],
               speed["ours"] / speed["plain"], GOAL, note=_spread([t.large for t in found["ours"]]))  # fmt: skip
    yield Line(title.format("latency"), "µs", small["ours"] * 1e6, small["plain"] * 1e6,
               small["plain"] / small["ours"], GOAL, note=_spread([t.small for t in found["ours"]]))  # fmt: skip


def _spread(seconds: list[float]) -> str:
    return f"{len(seconds)} runs, ours {min(seconds) * 1e6:.3g} to {max(seconds) * 1e6:.3g} µs"


def _job(family: str, ranks: int, times: tuple[str, str]) -> MPIJob:
    program = (sys.executable, str(PROGRAMS / "allreduce.py"), *times)
    room = Resources(cpu="1", memory="1Gi")
    return small_job(f"allreduce-{next(_number)}", ranks, *program, mpi=family, resources=room)


def _ours(there: Place, job: MPIJob) -> Taken:
    handle = there.client.run(job, timeout=120)
    return _taken("".join(line.text.decode() + "\n" for line in handle.logs(ranks=(0,))))


def _taken(text: str) -> Taken:
    for line in text.splitlines():
        if line.startswith("{"):
            return Taken(**json.loads(line))
    raise Unmeasured(f"the allreduce program said {text[-200:]!r}")
