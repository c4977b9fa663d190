"""`make bench-all`: every bench, one after the other, and one whole table at the end.

Each bench is a target of its own with what it needs, so each is run by make; here their records are joined. A line
that was not measured this time says from which day its figure is, and a bench that did not run at all is named.
Standard library only.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence

from tools.figures import FILES, Figure, number, recorded

from bench.report import aligned

TARGETS = {
    "local": "bench",
    "page": "bench-ui",
    "cluster": "bench-cluster",
    "services": "soak",
    "faults": "faults",
}
HEADER = ("measurement", "ours", "reference", "unit", "ratio", "asked", "goal", "result", "measured")
RIGHT = {1, 2, 4}
NOT_RUN = "not run"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benches and print the table; return 1 when one of them ended with trouble."""
    parser = argparse.ArgumentParser(prog="python -m bench.whole", description="all benches and one table")
    parser.add_argument("--only", nargs="*", choices=TARGETS, default=[*TARGETS], metavar="AREA")
    parser.add_argument(
        "--table", action="store_true", help="run nothing, print the table of what is recorded"
    )
    asked = parser.parse_args(argv)
    begun = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    chosen = [] if asked.table else asked.only
    ends = {area: _make(TARGETS[area]) for area in TARGETS if area in chosen}
    print(joined({area: recorded(path) for area, path in FILES.items()}, ends, begun))
    return 1 if any(ends.values()) else 0


def _make(target: str) -> int:
    print(f"make {target}", file=sys.stderr, flush=True)
    return subprocess.run([os.environ.get("MAKE", "make"), target], check=False).returncode


def joined(areas: Mapping[str, Sequence[Figure]], ends: Mapping[str, int], begun: str) -> str:
    """Return one table of all areas, and below it what did not run and what was missed."""
    rows: list[tuple[str, ...]] = [HEADER]
    for area, figures in areas.items():
        rows.append((f"-- {area}: make {TARGETS[area]}", *[""] * (len(HEADER) - 1)))
        rows += [_cells(figure, begun) for figure in figures] or [_nothing()]
    return "\n".join([aligned(rows, RIGHT), "", *_below(areas, ends, begun)])


def _nothing() -> tuple[str, ...]:
    return ("nothing is recorded", *["-"] * (len(HEADER) - 2), NOT_RUN)


def _cells(figure: Figure, begun: str) -> tuple[str, ...]:
    if figure.missing:
        return (figure.name, *["-"] * 6, "not measured", figure.missing)
    compared = (number(figure.reference), figure.unit, number(figure.ratio))
    reference, unit, ratio = compared if figure.reference else ("-", figure.unit, "-")
    when = "now" if figure.time >= begun else f"{NOT_RUN} now, {figure.day}"
    where = f"{when}, {figure.machine}{', quick' if figure.quick else ''}"
    bounds = (figure.must or "-", figure.goal or "-")
    return (figure.name, number(figure.ours), reference, unit, ratio, *bounds, figure.verdict, where)


def _below(areas: Mapping[str, Sequence[Figure]], ends: Mapping[str, int], begun: str) -> Iterator[str]:
    for area in areas:
        target = TARGETS[area]
        if area not in ends:
            yield f"{NOT_RUN}: make {target}"
        elif ends[area]:
            yield f"make {target} ended with {ends[area]}"
    every = [figure for figures in areas.values() for figure in figures]
    now = sum(figure.time >= begun and not figure.missing for figure in every)
    missing = sum(bool(figure.missing) for figure in every)
    missed = sum(figure.verdict == "missed" for figure in every)
    older = len(every) - now - missing
    yield f"{len(every)} lines: {now} measured now, {older} before, {missing} not measured; {missed} missed"


if __name__ == "__main__":
    sys.exit(main())
