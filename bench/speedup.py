"""The same training steps on ever more workers, against bare mpiexec at the same ranks.

How many workers are tried follows from the cores: 1, 2, 4, 8 and 16, each with a core of its own. Sixty-four
workers are tried where there are sixteen cores; they share them. How much faster many workers are than one is the
business of `efficiency`.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench import bare, record
from bench.line import Line, Unmeasured, at_least
from bench.places import PROGRAMS, ROOT, Options, Place, place, small_job
from bench.timing import interleaved, median, output
from mpijob import MPIJob, Resources

COUNTS = (1, 2, 4, 8, 16)
MANY, MANY_WANT_CORES = 64, 16
ROWS_OF_A_BATCH, STEPS = 131072, 4
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
_number = itertools.count()


@dataclass(frozen=True)
class Times:
    """The seconds of one number of workers: ours, and under bare mpiexec."""

    ours: float
    bare: float


def counts(cores: int) -> tuple[int, ...]:
    """Return the numbers of workers that so many cores can hold."""
    fit = tuple(count for count in COUNTS if count <= cores)
    return (*fit, MANY) if cores >= MANY_WANT_CORES else fit


def measure(options: Options) -> Iterator[Line]:
    """Yield ours against bare mpiexec for each number of workers."""
    cores = record.cores()
    with place(cores=2.0 * MANY, memory="64Gi") as there:
        seconds = _seconds_of_all(there, counts(cores), options.rounds(5))
        yield from against_bare(seconds, _conditions(there, cores), cores)


def against_bare(seconds: Mapping[int, Times], conditions: str, cores: int) -> Iterator[Line]:
    """Yield a line for each number of workers: the ratio is that of the speeds."""
    for count, taken in seconds.items():
        title = f"training steps: {_workers(count)} against bare mpiexec"
        must = at_least(0.85)
        note = f"ratio of speeds; {conditions}"
        ratio = taken.bare / taken.ours
        yield Line(
            title, "s", taken.ours, taken.bare, ratio, at_least(0.97), must, note, rows=("C-baremetal",)
        )
    if MANY not in seconds:
        title = f"training steps: {_workers(MANY)} against bare mpiexec"
        yield Line(title, missing=_too_few(MANY_WANT_CORES, cores), rows=("C-baremetal",))


def _workers(count: int) -> str:
    return f"{count} worker{'' if count == 1 else 's'}"


def _too_few(wanted: int, cores: int) -> str:
    return f"it wants {wanted} cores, and this machine has {cores}"


def _seconds_of_all(there: Place, numbers: tuple[int, ...], rounds: int) -> dict[int, Times]:
    """Return the seconds of each number, all measured in turn."""
    works: dict[str, Callable[[], float]] = {}
    for count in numbers:
        works[f"ours {count}"] = partial(_ours, there, count)
        works[f"bare {count}"] = partial(_bare, bare.plain(there, _job(count)))
    found = interleaved(rounds, works)
    middle = {name: median(taken) for name, taken in found.items()}
    return {n: Times(middle[f"ours {n}"], middle[f"bare {n}"]) for n in numbers}


def _ours(there: Place, workers: int) -> float:
    return run(there, _job(workers))


def _bare(reference: bare.Bare) -> float:
    return seconds_in(output(*reference))


def _job(workers: int) -> MPIJob:
    train = ROOT / "examples" / "training" / "train.py"
    size = (str(ROWS_OF_A_BATCH), str(STEPS))
    program = (sys.executable, "-m", "mpi4py", str(PROGRAMS / "steps.py"), str(train), *size)
    room = Resources(cpu="1", memory="512Mi")
    return small_job(f"steps-{next(_number)}", workers, *program, resources=room, env=ONE_THREAD)


def run(there: Place, job: MPIJob) -> float:
    """Run a job and return the seconds that its first rank says."""
    handle = there.client.run(job, timeout=300)
    return seconds_in("".join(line.text.decode() + "\n" for line in handle.logs(ranks=(0,))))


def seconds_in(text: str) -> float:
    """Return the seconds that a program of ours says."""
    found = re.search(r"^seconds=([0-9.]+)$", text, re.M)
    if found is None:
        raise Unmeasured(f"the training said {text[-200:]!r}")
    return float(found[1])


def _conditions(there: Place, cores: int) -> str:
    """Return what must be known to judge the comparison."""
    plan = there.client.plan(_job(1))
    version = _version(plan.launch[0])
    python = f"Python {sys.version_info[0]}.{sys.version_info[1]}"
    return (
        f"{plan.family.value}{f' {version}' if version else ''}, {python}, one thread for each rank, "
        f"{cores} cores of {physical_cores()} physical ones, the same machine, in turn"
    )


def _version(mpiexec: str) -> str:
    done = subprocess.run([mpiexec, "--version"], capture_output=True, text=True, timeout=30, check=False)
    found = re.search(r"(?:Version:|Version|\) )\s*([0-9][0-9.]*)", done.stdout)
    return found[1] if found else ""


def physical_cores() -> int:
    """Return how many cores there are when two threads of one core count once, as far as the kernel knows."""
    places = (
        Path(f"/sys/devices/system/cpu/cpu{one}/topology/thread_siblings_list")
        for one in os.sched_getaffinity(0)
    )
    try:
        return len({path.read_text(encoding="ascii").strip() for path in places})
    except OSError:
        return record.cores()
