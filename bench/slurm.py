"""The Slurm engine against Slurm's own commands, side by side: `make bench-slurm`.

It runs as a user on the login node of the Slurm test bed. Clients are open, as in a program that uses the SDK; the
command line is measured too, for comparison: a Python interpreter starts with each command.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from bench import report
from bench.line import Line, at_most, bounded, compared
from bench.timing import command, first_line, interleaved, median, output
from mpijob import Client, Job, MPIJob, Phase
from mpijob.backends.slurm.backend import SlurmBackend
from mpijob.model import Resources
from mpijob.settings import Settings

ROUNDS = 15
MANY = 1000
_PARTITION = "main"
_FOLLOWED, _FOLLOWED_SECONDS = 20, 20.0
_SHAPE = ("-p", _PARTITION, "-N2", "-n2", "--ntasks-per-node=1", "--mem=100M", "-t", "5")
_COUNTED = ("squeue", "sacct", "scontrol", "sinfo")
_WRAPPER = '#!/bin/sh\necho {name} >>{log}\nexec {real} "$@"\n'


def main() -> int:
    """Measure, print the table, and return 0 where all goals hold."""
    with tempfile.TemporaryDirectory(dir=Path.home()) as home:
        settings = Settings(home=home, engine=f"slurm:{_PARTITION}")
        environ = {**os.environ, "MPIJOB_HOME": home, "MPIJOB_ENGINE": settings.engine}
        with Client(SlurmBackend(settings, settings.engine), settings=settings) as client:
            lines = []
            for work in (_submit, _first_line, _followed, _list):
                lines += [*work(client, environ)]
                _clear()
    print(report.table(lines))
    return 0 if all(line.holds is not False for line in lines) else 1


def _clear() -> None:
    subprocess.run(("scancel", "--me"), check=False)
    while output(("squeue", "-h", "--me", "-t", "PD,R,CG")):
        time.sleep(0.2)


def _job(name: str, script: str) -> MPIJob:
    return MPIJob(
        name=name, command=("sh", "-c", script), workers=2, resources=Resources(cpu="1", memory="100Mi")
    )


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _names() -> Iterator[str]:
    yield from (f"job-{number}" for number in range(1_000_000))


def _submit(client: Client, environ: dict[str, str]) -> Iterator[Line]:
    """Yield what a submit takes, while the jobs before it run and wait."""
    names = _names()
    words = ("sbatch", "--parsable", *_SHAPE, "--wrap", "true")
    cli = (_program(environ), "create")
    found = interleaved(
        ROUNDS,
        {
            "sbatch": lambda: _seconds(lambda: output(words, environ)),
            "sdk": lambda: _seconds(lambda: client.submit(_job(next(names), "true"))),
            "cli": lambda: command((*cli, next(names), "--workers", "2", "--", "true"), environ).wall,
        },
    )
    bare = median(found["sbatch"]) * 1e3
    yield compared("submit by the SDK against sbatch", "ms", median(found["sdk"]) * 1e3, bare, at_most(1.3))
    yield compared("submit by the command line against sbatch", "ms", median(found["cli"]) * 1e3, bare)


def _first_line(client: Client, environ: dict[str, str]) -> Iterator[Line]:
    """Yield the time from the start to the first line of the same program."""
    names, script = _names(), "echo up"

    def ours() -> float:
        start = time.perf_counter()
        handle = client.submit(_job(f"line-{next(names)}", script))
        lines = handle.logs(follow=True)
        next(iter(lines))
        seconds = time.perf_counter() - start
        handle.wait(60)
        return seconds

    def batch() -> float:
        """Return the same of sbatch, whose output file is watched."""
        path = Path(environ["MPIJOB_HOME"]) / f"out-{next(names)}"
        start = time.perf_counter()
        output(("sbatch", *_SHAPE, "-o", str(path), "--wrap", f"srun sh -c '{script}'"), environ)
        while not path.exists() or not path.stat().st_size:
            time.sleep(0.01)
        return time.perf_counter() - start

    found = interleaved(
        8,
        {
            "srun": lambda: first_line(("srun", "-Q", *_SHAPE, "sh", "-c", script), environ),
            "sbatch": batch,
            "sdk": ours,
        },
    )
    seconds = {name: median(values) for name, values in found.items()}
    yield compared("run to first line against srun", "s", seconds["sdk"], seconds["srun"], at_most(1.1))
    yield compared("run to first line against sbatch with srun in it", "s", seconds["sdk"], seconds["sbatch"])


def _followed(client: Client, environ: dict[str, str]) -> Iterator[Line]:
    """Yield how often Slurm is asked while many jobs are followed."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "asked"
        for name in _COUNTED:
            path = Path(folder) / name
            path.write_text(_WRAPPER.format(name=name, log=log, real=shutil.which(name)))
            path.chmod(0o755)
        known = os.environ["PATH"]
        handles = [client.submit(_job(f"followed-{number}", "sleep 300")) for number in range(_FOLLOWED)]
        os.environ["PATH"] = f"{folder}:{known}"
        try:
            over = threading.Event()
            threads = [threading.Thread(target=_follow, args=(one, over), daemon=True) for one in handles]
            for thread in threads:
                thread.start()
            time.sleep(_FOLLOWED_SECONDS)
            over.set()
            asked = log.read_text().split()
        finally:
            os.environ["PATH"] = known
        for handle in handles:
            handle.cancel()
    most = _FOLLOWED_SECONDS / 2
    several = ", ".join(f"{asked.count(name)} {name}" for name in _COUNTED if name in asked)
    number = float(sum(asked.count(name) for name in ("squeue", "sacct")))
    yield bounded(f"squeue and sacct in 20 s with {_FOLLOWED} jobs followed", "", number, most, several)


def _follow(handle: Job, over: threading.Event) -> None:
    while not over.is_set():
        handle.state()
        time.sleep(0.05)


def _list(client: Client, environ: dict[str, str]) -> Iterator[Line]:
    """Yield what a list takes with many jobs in the queue."""
    blocker = client.submit(
        MPIJob(name="blocker", command=("sleep", "3000"), workers=4, resources=Resources(cpu="4"))
    )
    blocker.wait(60, {Phase.RUNNING})
    for number in range(MANY):
        client.submit(_job(f"many-{number}", "true"))
    program = _program(environ)
    form = "--format=%i|%j|%T|%r"

    def sdk() -> float:
        time.sleep(2.1)  # squeue's last answer is then too old to be used again
        return _seconds(lambda: client.list(limit=MANY))

    found = interleaved(
        7,
        {
            "squeue": lambda: command(("squeue", "--me", form), environ).wall,
            "sdk": sdk,
            "again": lambda: _seconds(lambda: client.list(limit=100)),
            "cli": lambda: command((program, "list"), environ).wall,
        },
    )
    bare = median(found["squeue"]) * 1e3
    note = "all of them, each time with a new answer of squeue"
    yield compared(f"list of {MANY} jobs by the SDK against squeue", "ms", median(found["sdk"]) * 1e3, bare,
                   at_most(1.2), note=note)  # fmt: skip
    yield compared("its first page, within two seconds of another", "ms", median(found["again"]) * 1e3, bare)
    yield compared("mpijob list against squeue", "ms", median(found["cli"]) * 1e3, bare, at_most(1.2))


def _program(environ: dict[str, str]) -> str:
    return shutil.which("mpijob", path=environ["PATH"]) or "mpijob"


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        sys.exit(main())
