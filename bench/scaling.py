"""The training of `make run`, ours against bare mpiexec at the same ranks; then its steps alone, on ever more workers.

Time is taken inside the program, from MPI's start to the last barrier: what a job costs to start is
measured in `start`. How the steps alone get faster with workers is the business of `speedup`.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator

from bench import bare, speedup
from bench.line import Line, at_least
from bench.places import PROGRAMS, ROOT, Options, Place, place, small_job
from bench.timing import interleaved, median, output
from mpijob import MPIJob, Resources

RANKS = (1, 2, 4)
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
_number = itertools.count()


def measure(options: Options) -> Iterator[Line]:
    """Yield a line for each number of ranks, and those of the steps alone."""
    with place() as there:
        for ranks in RANKS:
            yield _at(there, ranks, options)
    yield from speedup.measure(options)


def _at(there: Place, ranks: int, options: Options) -> Line:
    epochs = 4 if options.quick else 12
    reference = bare.plain(there, _job(ranks, epochs))
    found = interleaved(
        options.rounds(7),
        {
            "ours": lambda: speedup.run(there, _job(ranks, epochs)),
            "bare": lambda: speedup.seconds_in(output(*reference)),
        },
    )
    ours, other = median(found["ours"]), median(found["bare"])
    title = f"training time: {ranks} rank{'s' if ranks > 1 else ''}"
    goal, must, rows = at_least(0.98), at_least(0.85), ("C-baremetal",)
    return Line(title, "s", ours, other, other / ours, goal, must, "ratio of speeds", rows=rows)


def _job(ranks: int, epochs: int) -> MPIJob:
    train = ROOT / "examples" / "training" / "train.py"
    program = (sys.executable, "-m", "mpi4py", str(PROGRAMS / "timed.py"), str(train))
    size = ("--epochs", str(epochs), "--samples", "40960", "--probe", "5")
    room = Resources(cpu="500m", memory="512Mi")
    return small_job(f"training-{next(_number)}", ranks, *program, *size, resources=room, env=ONE_THREAD)
