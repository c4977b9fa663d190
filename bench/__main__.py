"""`python -m bench [--only NAME…] [--quick] [--list]`: measure, print the table, write results.json."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench import (
    allreduce,
    detection,
    explaining,
    importing,
    listing,
    logs,
    memory,
    queueing,
    recording,
    report,
    scaling,
    start,
)
from bench.line import Line, Unmeasured
from bench.places import Options
from mpijob import MpiJobError

LONGEST_SECONDS = 1800
RESULTS = Path(__file__).parent / "results.json"
MEASUREMENTS: dict[str, Callable[[Options], Iterator[Line]]] = {
    "start": start.measure,
    "import": importing.measure,
    "list": listing.measure,
    "memory": memory.measure,
    "allreduce": allreduce.measure,
    "scaling": scaling.measure,
    "queue": queueing.measure,
    "detection": detection.measure,
    "why": explaining.measure,
    "recording": recording.measure,
    "logs": logs.measure,
}


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Return what was asked for on the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="side-by-side measurements")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=MEASUREMENTS, default=[*MEASUREMENTS])
    parser.add_argument("--quick", action="store_true", help="fewer rounds, jobs and kills")
    parser.add_argument("--kills", type=int, default=50, help="kills of each kind in a full run")
    parser.add_argument("--list", action="store_true", help="print the names of the measurements")
    return parser.parse_args(argv)


def measured(name: str, options: Options) -> Iterator[Line]:
    """Yield a measurement's lines; what could not be measured becomes a line that says why."""
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(LONGEST_SECONDS)
    try:
        yield from MEASUREMENTS[name](options)
    except (Unmeasured, MpiJobError, OSError, subprocess.SubprocessError) as error:
        yield Line(name, missing=" ".join(str(error).split()) or type(error).__name__)
    finally:
        signal.alarm(0)


def _too_long(*_: object) -> None:
    raise Unmeasured(f"it took longer than {LONGEST_SECONDS} s")


def main() -> int:
    """Measure what was asked for; return 1 when something could not be measured."""
    args = arguments()
    if args.list:
        print("\n".join(MEASUREMENTS))
        return 0
    options = Options(quick=args.quick, kills=args.kills, jobs=100 if args.quick else 1000)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that homes are cleaned up
    lines: list[Line] = []
    for name in args.only:
        begun = time.monotonic()
        lines += measured(name, options)
        print(f"{name}: {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
    print(report.table(lines))
    report.store(RESULTS, lines, quick=args.quick)
    return 1 if any(line.missing for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
