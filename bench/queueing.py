"""Many small jobs: how fast the queue is worked off, and what a submit costs when many wait.

The machine is first held by one sleeping job, so that all others wait; then it is released. Two
jobs run at once, as two loops of bare mpiexec do.
"""

from __future__ import annotations

import itertools
import subprocess
import time
from collections.abc import Iterator
from typing import NamedTuple

from bench import bare
from bench.bare import Bare
from bench.line import Line, Unmeasured, at_least, at_most, compared
from bench.places import Options, Place, place, small_job
from bench.timing import median, p95
from mpijob import Job, JobState, MPIJob, Phase, Resources

AT_ONCE = 2
SUBMITS = 30
TRUE = ("true",)
UNFINISHED = ("Queued", "Pending", "Initializing", "Running")
_number = itertools.count()


def measure(options: Options) -> Iterator[Line]:
    """Yield the rate of jobs and the cost of a submit."""
    with place(cores=AT_ONCE) as busy, place(cores=AT_ONCE) as empty:
        holders = [_hold(there) for there in (busy, empty)]
        for _ in range(options.jobs):
            busy.client.submit(_job())
        yield _submits(busy, empty, options.jobs)
        holders[1].cancel(0)
        yield _rate(busy, holders[0], options.jobs)


def _hold(there: Place) -> Job:
    room, rest = Resources(cpu=f"{AT_ONCE * 1000 - 50}m", memory="64Mi"), Resources(cpu="50m", memory="64Mi")
    holder = there.client.submit(small_job("holder", 1, "sleep", "3600", resources=room, launcher=rest))
    holder.wait(60, {Phase.RUNNING})
    return holder


def _job() -> MPIJob:
    each, launcher = Resources(cpu="450m", memory="64Mi"), Resources(cpu="100m", memory="64Mi")
    return small_job(f"true-{next(_number)}", 2, *TRUE, resources=each, launcher=launcher)


def _submits(busy: Place, empty: Place, jobs: int) -> Line:
    found: dict[str, list[float]] = {"busy": [], "empty": []}
    for _ in range(SUBMITS):
        for name, there in (("busy", busy), ("empty", empty)):
            start = time.perf_counter()
            handle = there.client.submit(_job())
            found[name].append(time.perf_counter() - start)
            handle.delete()
    ours, reference = (median(found[name]) * 1e3 for name in ("busy", "empty"))
    note = f"p95 {p95(found['busy']) * 1e3:.1f} and {p95(found['empty']) * 1e3:.1f} ms"
    return compared(f"submit: {jobs} jobs waiting against none", "ms", ours, reference, at_most(3), note=note)


def _rate(there: Place, holder: Job, jobs: int) -> Line:
    reference = bare.plain(there, _job())
    loops = [_loop(reference, jobs // 2)]
    holder.cancel(0)
    states = _all_done(there)
    loops.append(_loop(reference, jobs - jobs // 2))
    first = min(state.started or 0.0 for state in states)
    seconds = max(state.finished or 0.0 for state in states) - first
    failed = sum(state.phase is not Phase.SUCCEEDED for state in states), sum(loop.failed for loop in loops)
    note = f"{jobs} in {seconds:.1f} s, at most {_most_at_once(states)} at once; failed: {failed[0]} and {failed[1]}"
    ours, other = len(states) / seconds, jobs / sum(loop.seconds for loop in loops)
    return compared("queue: jobs of true, 2 ranks", "jobs/s", ours, other, at_least(0.3), at_least(0.1), note)


class Loop(NamedTuple):
    """What the shell loop took; a bare mpiexec of a program that ends at once dies of SIGPIPE now and then."""

    seconds: float
    failed: int


def _loop(reference: Bare, jobs: int) -> Loop:
    numbers = "\n".join(map(str, range(jobs)))
    # xargs adds the number behind the last word: `true` takes any arguments.
    line = ("xargs", "-P", str(AT_ONCE), "-n", "1", "sh", "-c", '"$@" || echo failed', "sh", *reference.argv)
    start = time.perf_counter()
    done = subprocess.run(
        line, input=numbers, text=True, env=reference.environ, capture_output=True, check=True
    )
    return Loop(time.perf_counter() - start, done.stdout.count("failed"))


def _all_done(there: Place, seconds: float = 1500.0) -> list[JobState]:
    """Return the jobs of the queue once none waits or runs."""
    deadline = time.monotonic() + seconds
    while left := there.client.list(phases=UNFINISHED, limit=1).total:
        if time.monotonic() > deadline:
            raise Unmeasured(f"{left} jobs did not end within {seconds:g} s")
        time.sleep(0.5)
    return list(there.client.jobs(phases=("Succeeded", "Failed")))


def _most_at_once(states: list[JobState]) -> int:
    edges = [(state.started or 0.0, 1) for state in states] + [(s.finished or 0.0, -1) for s in states]
    return max(itertools.accumulate(step for _, step in sorted(edges)))
