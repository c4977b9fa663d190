"""Proof of the world: the CPU that looking at ranks takes until their MPI has come up.

A program without MPI is looked at for a minute; one whose MPI is up is not. What the job's supervisor uses for the
first beyond what it uses for the second is the proof's.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator

from bench.detection import TOGETHER, supervisor
from bench.line import Line, Unmeasured, at_most
from bench.places import Options, Place, place, small_job
from bench.timing import median
from mpijob import Phase
from mpijob.backends.local.worker import process_tree

SECONDS = 8.0
GOAL_PERCENT = 1.0
WITHOUT_MPI = (sys.executable, "-c", f"import time; print('ready', flush=True); time.sleep({SECONDS + 4})")
WITH_MPI = (sys.executable, TOGETHER)
_number = itertools.count()


def measure(options: Options) -> Iterator[Line]:
    """Yield a line for few and for many ranks."""
    for ranks in (2, 16):
        with place() as there:
            rounds = options.rounds(3)
            looked = median([_percent(there, ranks, *WITHOUT_MPI) for _ in range(rounds)])
            idle = median([_percent(there, ranks, *WITH_MPI) for _ in range(rounds)])
        used = looked - idle
        note = f"of one core; the supervisor alone {idle:.2f} %, over {SECONDS:g} s"
        title = f"proof of the world until MPI is up, {ranks} ranks"
        yield Line(title, "%", used, GOAL_PERCENT, used / GOAL_PERCENT, at_most(1), note=note)


def _percent(there: Place, ranks: int, *program: str) -> float:
    """Return what the supervisor of a job uses of one core while its ranks run."""
    handle = there.client.submit(small_job(f"proof-{next(_number)}", ranks, *program))
    handle.wait(60, {Phase.RUNNING})
    ready = (line for line in handle.logs(follow=True) if line.text == b"ready")
    next(itertools.islice(ready, ranks - 1, None))
    pid = supervisor(there, handle)
    before = _cpu_seconds(pid)
    time.sleep(SECONDS)
    used = _cpu_seconds(pid) - before
    handle.cancel()
    handle.wait(60)
    return used / SECONDS * 100


def _cpu_seconds(pid: int) -> float:
    process = process_tree.read_process(pid)
    if process is None:
        raise Unmeasured(f"the supervisor {pid} has ended")
    return process.cpu_seconds
