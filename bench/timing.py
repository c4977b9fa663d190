"""Clocks: how long a command takes, how long until its first line, and medians over rounds."""

from __future__ import annotations

import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from bench.line import Unmeasured

PATIENCE_SECONDS = 120.0
PASS = (sys.executable, "-c", "pass")
Environ = Mapping[str, str] | None


# A child's peak begins with that of whoever starts it, so the one that is measured is started by a small process.
_MEASURED = """
import os, sys, time
null = os.open(os.devnull, os.O_RDWR)
same = [(os.POSIX_SPAWN_DUP2, null, fd) for fd in (0, 1, 2)]
start = time.perf_counter()
pid = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ, file_actions=same)
_, status, used = os.wait4(pid, 0)
wall = time.perf_counter() - start
print(os.waitstatus_to_exitcode(status), wall, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)
"""


class Cost(NamedTuple):
    """What a command took, in seconds, and the most memory that it held."""

    wall: float
    cpu: float
    peak_bytes: int


def command(argv: Sequence[str], environ: Environ = None) -> Cost:
    """Return what a command costs from its start to its end; its children's CPU time counts."""
    measuring = (sys.executable, "-S", "-E", "-c", _MEASURED, *argv)
    done = subprocess.run(
        measuring, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Unmeasured(f"{' '.join(argv)} was not measured: {done.stderr.strip()[-300:]}")
    code, wall, cpu, peak = done.stdout.split()
    if int(code):
        raise Unmeasured(f"{' '.join(argv)} ended with {code}")
    return Cost(float(wall), float(cpu), int(peak))


def output(argv: Sequence[str], environ: Environ = None, directory: str | None = None) -> str:
    """Return what a command prints."""
    done = subprocess.run(
        argv, env=environ, cwd=directory, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=PATIENCE_SECONDS, check=False,
    )  # fmt: skip
    if done.returncode:
        raise Unmeasured(f"{' '.join(argv)} ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    return done.stdout


def first_line(argv: Sequence[str], environ: Environ = None) -> float:
    """Return the seconds from a command's start to the arrival of its first line; wait for its end."""
    start = time.perf_counter()
    child = subprocess.Popen(
        argv, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert child.stdout is not None
    said = child.stdout.readline()
    seconds = time.perf_counter() - start
    child.communicate(timeout=PATIENCE_SECONDS)
    if not said or child.returncode:
        raise Unmeasured(f"{' '.join(argv)} ended with {child.returncode} and said {said!r}")
    return seconds


def interleaved(rounds: int, works: Mapping[str, Callable[[], float]]) -> dict[str, list[float]]:
    """Do each piece of work once a round, so that other load on the machine meets all of them alike."""
    for work in works.values():
        work()  # the first time fills caches
    found: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            found[name].append(work())
    return found


median = statistics.median


def p95(values: Sequence[float]) -> float:
    """Return the value that 95 % do not exceed."""
    return sorted(values)[max(0, math.ceil(len(values) * 0.95) - 1)]


def milliseconds(values: Sequence[float]) -> str:
    """Return median and p95 as people read them."""
    return f"{median(values) * 1e3:.0f} (p95 {p95(values) * 1e3:.0f}) ms"
