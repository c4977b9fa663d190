"""Start: what `mpijob run`, and the SDK, add to a job's first line over bare mpiexec.

The time runs from the start of the command (or the call) to the arrival of the first rank's line,
and is told in units of `python -c pass`, measured in the same rounds.
"""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Iterator

from bench import bare
from bench.line import Bound, Line, at_most
from bench.places import Options, Place, place, small_job
from bench.timing import PASS, command, first_line, interleaved, median, milliseconds
from mpijob import MPIJob

SAY = ("echo", "here")
RANKS = (2, 4, 16)
_number = itertools.count()


def measure(options: Options) -> Iterator[Line]:
    """Yield the lines for each number of ranks."""
    for ranks in RANKS:
        with place() as there:
            yield from _at(there, ranks, options.rounds(15))


def _at(there: Place, ranks: int, rounds: int) -> Iterator[Line]:
    reference = bare.plain(there, _job(ranks))
    found = interleaved(
        rounds,
        {
            "pass": lambda: command(PASS).wall,
            "bare": lambda: first_line(*reference),
            "run": lambda: _run(there, ranks, "--no-census"),
            "census": lambda: _run(there, ranks),
            "sdk": lambda: _sdk(there, _job(ranks, census=False)),
        },
    )
    unit = median(found["pass"])
    note = f"first line: bare {milliseconds(found['bare'])}, "
    without = median(found["run"])
    added = {
        "run": (without - median(found["bare"]), at_most(12 if ranks == 2 else 15 + ranks)),
        "sdk": (median(found["sdk"]) - median(found["bare"]), at_most(8 + ranks)),
        "census": (median(found["census"]) - without, at_most(5)),
    }
    for name, (seconds, goal) in added.items():
        yield _line(name, ranks, seconds, unit, goal, f"{note}{name} {milliseconds(found[name])}")


def _line(name: str, ranks: int, seconds: float, unit: float, goal: Bound, note: str) -> Line:
    titles = {"run": "mpijob run adds", "sdk": "SDK adds", "census": "census adds"}
    title = f"start: {titles[name]}, {ranks} ranks"
    return Line(title, "ms", seconds * 1e3, unit * 1e3, seconds / unit, goal, note=note)


def _job(ranks: int, *, census: bool = True) -> MPIJob:
    return small_job(f"start-{next(_number)}", ranks, *SAY, census=census)


def _run(there: Place, ranks: int, *flags: str) -> float:
    there.idle()
    program = shutil.which("mpijob", path=there.environ["PATH"]) or "mpijob"
    size = ("--workers", str(ranks), "--cpu", "50m", "--memory", "256Mi", "--launcher-cpu", "50m")
    line = (program, "run", f"start-{next(_number)}", *size, *flags, "--", *SAY)
    return first_line(line, there.environ)


def _sdk(there: Place, job: MPIJob) -> float:
    there.idle()
    start = time.perf_counter()
    handle = there.client.submit(job)
    next(handle.logs(follow=True))
    seconds = time.perf_counter() - start
    handle.wait_for_completion(60)
    return seconds
