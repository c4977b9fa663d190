"""What counting MPI calls costs: latency and bandwidth of messages with the shim and without, then applications.

A message of a few bytes takes a fraction of a microsecond in one machine's memory, so two looks at a clock show there;
that is told as it is. What is asked is that an application is at most 3 % slower: a training with an allreduce after
each step, and heat on a grid, whose ranks exchange their borders in every step.
"""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from bench.line import Line, Unmeasured, at_most
from bench.places import PROGRAMS, ROOT, Options, Place, installed, place, small_job
from bench.timing import median
from mpijob import MPIJob, Resources

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_LEAST = at_most(1.03)
_SIZES = {
    "ping-pong-8": "ping-pong of 8 bytes",
    "ping-pong-large": "ping-pong of 1 MiB",
    "allreduce-8": "allreduce of 8 bytes",
    "allreduce-large": "allreduce of 8 MiB",
}
_number = itertools.count()


def measure(options: Options) -> Iterator[Line]:
    """Yield the lines of every MPI that this machine has."""
    with place() as there, tempfile.TemporaryDirectory(prefix="mpijob-bench-") as folder:
        for name, family, with_it in installed(there):
            mpicc = Path(with_it.client.settings.mpi_directories[family]) / "bin" / "mpicc"
            if mpicc.exists():
                yield from _messages(name, family, with_it, _compiled(mpicc, "pingpong.c", folder), options)
                yield _heat(name, family, with_it, _compiled(mpicc, "heat.c", folder), options)
        yield _training(there, options)


def _compiled(mpicc: Path, source: str, folder: str) -> str:
    program = Path(folder) / f"{source}-{next(_number)}"
    found = PROGRAMS / source
    done = subprocess.run(
        [mpicc, "-O2", found, "-o", program, "-lm"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Unmeasured(f"{mpicc} could not compile {source}: {done.stderr.strip()[-200:]}")
    return str(program)


def _messages(name: str, family: str, there: Place, program: str, options: Options) -> Iterator[Line]:
    """Yield each kind of message: the best of many rounds, which other work on the machine disturbs least."""
    with_shim, without = [], []
    for _ in range(options.rounds(5)):
        without.append(_best(_said(there, _job(family, 2, program))))
        with_shim.append(_best(_said(there, _job(family, 2, program).replace(profile_mpi=True))))
    for key, title in _SIZES.items():
        ours, plain = (min(run[key] for run in runs) for runs in (with_shim, without))
        note = f"one way, best of {len(without)} runs; the shim adds {(ours - plain) * 1e3:.0f} ns"
        yield Line(f"counted MPI calls: {title}, {name}", "µs", ours, plain, ours / plain, note=note)


def _best(text: str) -> Mapping[str, float]:
    found = dict(re.findall(r"^(\S+) best=([0-9.]+) ", text, re.M))
    if found.keys() != _SIZES.keys():
        raise Unmeasured(f"the ping-pong said {text[-200:]!r}")
    return {key: float(value) for key, value in found.items()}


def _heat(name: str, family: str, there: Place, program: str, options: Options) -> Line:
    return _compared(f"heat on a grid, {name}", there, _job(family, 4, program), options)


def _training(there: Place, options: Options) -> Line:
    train = ROOT / "examples" / "training" / "train.py"
    argv = (sys.executable, "-m", "mpi4py", str(PROGRAMS / "rows.py"), str(train), "2")
    return _compared("training, MPICH", there, _job("mpich", 4, *argv), options)


def _compared(what: str, there: Place, job: MPIJob, options: Options) -> Line:
    """Return how much longer an application takes, from runs in turn."""
    ours, plain = [], []
    for _ in range(options.rounds(9)):
        plain.append(_per_step(_said(there, job.replace(name=f"{job.name}-{next(_number)}"))))
        ours.append(
            _per_step(_said(there, job.replace(name=f"{job.name}-{next(_number)}", profile_mpi=True)))
        )
    note = f"time of a step, medians of {len(plain)} runs; {_spread(ours)} with, {_spread(plain)} without"
    taken, before = median(ours), median(plain)
    return Line(f"counted MPI calls: {what}, 4 ranks", "µs", taken, before, taken / before, _LEAST, note=note,
                rows=("PMV-012",))  # fmt: skip


def _spread(values: list[float]) -> str:
    return f"{min(values):.4g} to {max(values):.4g} µs"


def _per_step(text: str) -> float:
    found = re.search(r"seconds=([0-9.]+) steps=(\d+)", text)
    if found is None:
        raise Unmeasured(f"the application said {text[-200:]!r}")
    return float(found[1]) / int(found[2]) * 1e6


def _job(family: str, ranks: int, *program: str) -> MPIJob:
    room = Resources(cpu="1", memory="1Gi")
    return small_job(f"shim-{next(_number)}", ranks, *program, mpi=family, resources=room, env=ONE_THREAD)


def _said(there: Place, job: MPIJob) -> str:
    handle = there.client.run(job, timeout=300)
    return "".join(line.text.decode() + "\n" for line in handle.logs(ranks=(0,)))
