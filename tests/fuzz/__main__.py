"""`make fuzz`: hunt with every target for a bounded time, keep what was learnt, and print a table.

A find is kept with the corpus, so that `make test` fails until it is mended, and its input is named.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.fuzz import corpus
from tests.fuzz.targets import TARGETS

ROOT = Path(__file__).parents[2]
_TRIED = re.compile(r"stat::number_of_executed_units:\s*(\d+)")


class Hunted(NamedTuple):
    """What one hunt came to."""

    target: str
    tried: int
    kept: int
    found: int
    said: str


def main() -> int:
    """Hunt; return 1 when a promise was broken."""
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--only", nargs="+", choices=TARGETS, default=[*TARGETS], metavar="TARGET")
    parser.add_argument("--at-once", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--work", type=Path, default=ROOT / ".make" / "fuzz")
    asked = parser.parse_args()
    print(f"{'target':18} {'tried':>10} {'kept':>5} {'found':>5}  promise")
    wrong = False
    with ThreadPoolExecutor(asked.at_once) as pool:
        for one in pool.map(partial(hunted, work=asked.work, seconds=asked.seconds), asked.only):
            print(f"{one.target:18} {one.tried:10} {one.kept:5} {one.found:5}  {TARGETS[one.target].promise}")
            print(one.said, end="", flush=True)
            wrong = wrong or bool(one.found)
    return 1 if wrong else 0


def hunted(target: str, *, work: Path, seconds: int) -> Hunted:
    """Hunt with one target and keep what came of it."""
    folder = work / target
    seen = folder / "seen"
    seen.mkdir(parents=True, exist_ok=True)
    for name, data in [*_begin(target), *corpus.kept(target)]:
        (seen / name).write_bytes(data)
    argv = [sys.executable, "-m", "tests.fuzz.hunt", target, str(folder), str(seconds)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    tried = _TRIED.search(done.stderr)
    found = [path.read_bytes() for path in sorted((folder / "found").glob("*"))]
    kept = corpus.keep(target, (path.read_bytes() for path in seen.iterdir()), found)
    said = "".join(f"    {line}\n" for line in done.stderr.splitlines()[-25:]) if done.returncode else ""
    return Hunted(target, int(tried[1]) if tried else 0, kept, len(found), said)


def _begin(target: str) -> list[tuple[str, bytes]]:
    return [(f"begin-{number}", data) for number, data in enumerate(TARGETS[target].begin())]


if __name__ == "__main__":
    sys.exit(main())
