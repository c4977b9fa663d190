"""Memory of our own processes while a job of four workers runs (PSS)."""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench import processes
from bench.line import Line, at_most, compared
from bench.places import Options, Place, place, small_job
from bench.timing import median
from mpijob import Phase

WORKERS = 4
LIMIT_MB = 15 + 10 * WORKERS
SETTLE_SECONDS = 1.0


def measure(options: Options) -> Iterator[Line]:
    """Yield one line; MPI's own processes and the program are not counted."""
    with place() as there:
        found = [_once(there, number) for number in range(options.rounds(3))]
        count = f"{found[0][1]} processes"
        megabytes = median([size for size, _ in found]) / 1e6
        yield compared("memory: job of 4 workers", "MB", megabytes, LIMIT_MB, at_most(1), note=count)


def _once(there: Place, number: int) -> tuple[int, int]:
    handle = there.client.submit(small_job(f"memory-{number}", WORKERS, "sleep", "60"))
    handle.wait(60, {Phase.RUNNING})
    time.sleep(SETTLE_SECONDS)
    pids = processes.ours(there.home)
    used = processes.pss_bytes(pids)
    handle.cancel(0)
    there.idle()
    return used, len(pids)
