"""A set of measurements from the shell: which are asked for, each within its time, the table, the results.

`--only` takes the names of measurements; what could not be measured becomes a line that says why.
"""

from __future__ import annotations

import argparse
import compileall
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from bench import record, report
from bench.line import Line, Unmeasured
from bench.places import ROOT, Options
from mpijob import MpiJobError

LONGEST_SECONDS = 1800
Measurements = Mapping[str, Callable[[Options], Iterator[Line]]]


def main(program: str, measurements: Measurements, results: Path) -> int:
    """Measure what was asked for; return 1 when a part broke, not where a machine is too small for a line."""
    args = _arguments(program, measurements)
    if args.list:
        print("\n".join(measurements))
        return 0
    options = Options(quick=args.quick, kills=args.kills, jobs=100 if args.quick else 1000)
    compileall.compile_dir(ROOT / "src", quiet=1)  # as pip does when it installs
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that homes and namespaces are cleaned up
    lines: list[Line] = []
    for name in args.only:
        begun, before = time.monotonic(), os.getloadavg()[0]
        found = list(_measured(name, measurements[name], options))
        record.store(
            results, record.this_run(name, quick=args.quick), found
        )  # at once: a later part may end us
        lines += found
        took = time.monotonic() - begun
        print(f"{name}: {took:.0f} s, load {before:.1f} before, {_load()} after", file=sys.stderr, flush=True)
    print(report.table(lines))
    return 1 if any(line.missing and line.name in measurements for line in lines) else 0


def _arguments(program: str, measurements: Measurements) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description="side-by-side measurements")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=measurements, default=[*measurements])
    parser.add_argument("--quick", action="store_true", help="fewer rounds, jobs and kills")
    parser.add_argument("--kills", type=int, default=50, help="kills of each kind in a full run")
    parser.add_argument("--list", action="store_true", help="print the names of the measurements")
    return parser.parse_args()


def _measured(name: str, measure: Callable[[Options], Iterator[Line]], options: Options) -> Iterator[Line]:
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(LONGEST_SECONDS)
    try:
        yield from measure(options)
    except (Unmeasured, MpiJobError, OSError, subprocess.SubprocessError) as error:
        yield Line(name, missing=" ".join(str(error).split()) or type(error).__name__)
    finally:
        signal.alarm(0)


def _too_long(*_: object) -> None:
    raise Unmeasured(f"it took longer than {LONGEST_SECONDS} s")


def _load() -> str:
    return f"load {os.getloadavg()[0]:.1f} on {record.cores()} cores"
