"""Jobs of many real workers on one real node: sixteen until the job runs, thirty-two until MPI is up.

MPI is up when a barrier of all ranks is behind rank 0; the end is the kubelet's time stamp of its line.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

from bench.cluster.places import Place, place, until
from bench.line import Line, Unmeasured, bounded
from bench.places import Options
from mpijob import Phase, Resources

BOUND_SECONDS = 120.0
RUNNING, TOGETHER = 16, 32
ROOM = Resources(cpu="10m", memory="128Mi")
LAUNCHER = Resources(cpu="100m", memory="512Mi")  # it holds a connection to every worker
UP = "world is up"
PROGRAM = f"""
from mpi4py import MPI
world = MPI.COMM_WORLD
world.Barrier()
if world.rank == 0: print("{UP}", world.size, flush=True)
"""
_number = itertools.count()


def measure(options: Options) -> Iterator[Line]:
    """Yield both lines; a node takes its time, so each is done only a few times and the slowest counts."""
    rounds = 1 if options.quick else 2
    with place("large") as there:
        yield line(f"{RUNNING} workers, submit to Running", [_runs(there) for _ in range(rounds)], "C-start")
        words = f"{TOGETHER} workers, submit to MPI up"
        try:
            yield line(words, [_is_up(there) for _ in range(rounds)], "AC8")
        except Unmeasured as error:
            yield Line(f"large: {words}", missing=str(error), rows=("AC8",))


def line(words: str, seconds: list[float], row: str) -> Line:
    """Return what is asked of a job that took so long; the slowest time counts."""
    worst = max(seconds)
    note = f"the slowest of {len(seconds)}, on one node; workers of {ROOM.cpu} CPU"
    return bounded(f"large: {words}", "s", worst, BOUND_SECONDS, note, (row,))


def _runs(there: Place) -> float:
    name = f"large-{next(_number)}"
    job = there.small_job(name, RUNNING, "sleep", "600", resources=ROOM, launcher=LAUNCHER)
    start = time.monotonic()
    there.client.submit(job).wait(2 * BOUND_SECONDS, {Phase.RUNNING})
    taken = time.monotonic() - start
    _remove(there, name)
    return taken


def _is_up(there: Place) -> float:
    name = f"large-{next(_number)}"
    job = there.small_job(name, TOGETHER, "python3", "-c", PROGRAM, resources=ROOM, launcher=LAUNCHER)
    start = time.time()
    handle = there.client.submit(job)
    found: list[float] = []

    def said() -> bool:
        lines = there.launcher_log(name)
        found[:] = [moment for moment, text in lines if text.endswith(f"{UP} {TOGETHER}")]
        return bool(found) or handle.state().phase is Phase.FAILED

    until(said, f"the world of {name}", 2 * BOUND_SECONDS)
    state = handle.state()
    _remove(there, name)
    if not found:
        raise Unmeasured(
            f"the job failed: {' '.join(one.message for one in state.findings[:1]) or state.message}"
        )
    return found[0] - start


def _remove(there: Place, name: str) -> None:
    there.remove(name)
    there.cleared()
