"""How much of so many workers is left: a compute-bound training for a minute each time, three times, and the spread.

One part for each number of workers, because each takes eight minutes: `python -m bench --only efficiency-8`. One worker
and many are measured in turn; the many also without talking to each other, which is what this machine has for so many
processes at once, whoever starts them. How much of the time of a step is communication is measured with the shim that
counts MPI calls (`mpijob profile`), in a run of its own.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from bench import bare, record
from bench.line import Bound, Line, Unmeasured, at_least, at_most
from bench.places import PROGRAMS, ROOT, Options, Place, place, small_job
from bench.timing import median, output
from mpijob import MPIJob, Resources

SECONDS, QUICK_SECONDS = 60.0, 8.0
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "MPI4PY_RC_THREADS": "0",
}
_number = itertools.count()


@dataclass(frozen=True)
class Wish:
    """What is asked of so many workers, told from the rows a second of one and of all of them."""

    title: str
    workers: int
    row: str
    ratio: Callable[[float, float], float]
    goal: Bound
    must: Bound | None = None


WISHES = (
    Wish("share of one worker's time", 4, "SC-002", lambda one, many: one / many, at_most(0.30)),
    Wish("speed against one worker", 4, "NFR-001", lambda one, many: many / one, at_least(2.0)),
    Wish("efficiency", 8, "SC-013", lambda one, many: many / one / 8, at_least(0.90), at_least(0.85)),
    Wish("efficiency", 16, "E-eff", lambda one, many: many / one / 16, at_least(0.90), at_least(0.75)),
    Wish("efficiency of 16 cores", 64, "AC8-eff", lambda one, many: many / one / 16, at_least(0.80)),
)
MOST_CORES = 16  # that any of them wants: of more workers several share a core
COUNTS = tuple(sorted({wish.workers for wish in WISHES}))


@dataclass(frozen=True)
class Rates:
    """Rows a second: of one worker, of many, of many that do not talk, and of many under bare mpiexec."""

    one: Sequence[float]
    many: Sequence[float]
    apart: Sequence[float]
    bare: Sequence[float]


def measure(workers: int, options: Options) -> Iterator[Line]:
    """Yield what is asked of so many workers, and the share of communication in their time."""
    cores = record.cores()
    if (wanted := min(workers, MOST_CORES)) > cores:
        reason = f"it wants {wanted} cores, and this machine has {cores}"
        yield from (Line(_title(wish), missing=reason, rows=(wish.row,)) for wish in _wishes(workers))
        return
    with place(cores=2.0 * workers, memory="64Gi") as there:
        yield from lines(workers, _rates(there, workers, options))
        yield _communication(there, workers, options)


def lines(workers: int, rates: Rates) -> Iterator[Line]:
    """Yield the lines for one number of workers."""
    one, many, apart = median(rates.one), median(rates.many), median(rates.apart)
    for wish in _wishes(workers):
        ceiling = wish.ratio(one, apart)
        note = (
            f"{_spread(rates.many)} of {workers} workers, {_spread(rates.one)} of one; "
            f"{ceiling:.3g} is what the same programs reach here without talking to each other"
        )
        ratio = wish.ratio(one, many)
        yield Line(_title(wish), "rows/s", many, one, ratio, wish.goal, wish.must, note, rows=(wish.row,))
    plain = median(rates.bare)
    yield Line(
        f"training steps, a minute each: {workers} workers against bare mpiexec", "rows/s", many, plain, many / plain,
        at_least(0.97), at_least(0.85), _spread(rates.bare) + " under bare mpiexec", rows=("C-baremetal",),
    )  # fmt: skip


def _communication(there: Place, workers: int, options: Options) -> Line:
    """Return the share of a training step that is communication, as the shim sees it."""
    job = _job(workers, QUICK_SECONDS if options.quick else 20.0).replace(profile_mpi=True)
    handle = there.client.run(job, timeout=300)
    profile = handle.profile()
    if profile.share is None or profile.lacks:
        raise Unmeasured(f"the MPI calls of {job.name} were not counted: {', '.join(profile.lacks)}")
    least, most = min(one.share for one in profile.ranks), max(one.share for one in profile.ranks)
    note = f"mean of {workers} ranks, {least:.1%} to {most:.1%}; blocking allreduce of 155 kB after each step"
    title = f"share of communication in the time of a training step: {workers} workers"
    return Line(title, "", profile.share, 0.15, profile.share, at_most(0.15), note=note, rows=("D-overhead",))


def _wishes(workers: int) -> list[Wish]:
    return [wish for wish in WISHES if wish.workers == workers]


def _title(wish: Wish) -> str:
    return f"training, a minute each: {wish.workers} workers, {wish.title}"


def _spread(rates: Sequence[float]) -> str:
    return f"{len(rates)} runs, {min(rates):.0f} to {max(rates):.0f} rows/s"


def _rates(there: Place, workers: int, options: Options) -> Rates:
    """Measure in turn, so that what disturbs the machine meets all of them; the reference without talking twice."""
    seconds = QUICK_SECONDS if options.quick else SECONDS
    shorter = QUICK_SECONDS if options.quick else SECONDS / 3
    works: dict[str, tuple[int, Callable[[], float]]] = {
        "one": (3, partial(_ours, there, 1, seconds)),
        "many": (3, partial(_ours, there, workers, seconds)),
        "apart": (2, partial(_bare, there, _job(workers, shorter, "apart"))),
        "bare": (2, partial(_bare, there, _job(workers, shorter))),
    }
    found: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(3):
        for name, (times, work) in works.items():
            if turn < times:
                found[name].append(work())
    return Rates(**found)


def _ours(there: Place, workers: int, seconds: float) -> float:
    handle = there.client.run(_job(workers, seconds), timeout=300)
    return _rows("".join(line.text.decode() + "\n" for line in handle.logs(ranks=(0,))))


def _bare(there: Place, job: MPIJob) -> float:
    return _rows(output(*bare.plain(there, job)))


def _rows(text: str) -> float:
    found = re.search(r"^rows=([0-9.]+) ", text, re.M)
    if found is None:
        raise Unmeasured(f"the training said {text[-200:]!r}")
    return float(found[1])


def _job(workers: int, seconds: float, *how: str) -> MPIJob:
    train = ROOT / "examples" / "training" / "train.py"
    program = (sys.executable, "-m", "mpi4py", str(PROGRAMS / "rows.py"), str(train), str(seconds), *how)
    room = Resources(cpu="1", memory="512Mi")
    return small_job(f"rows-{next(_number)}", workers, *program, resources=room, env=ONE_THREAD)
