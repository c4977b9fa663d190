"""Twelve failures in real pods: how long after it went wrong `why` has told all of it, and how many rightly."""

from __future__ import annotations

from collections.abc import Iterator

from tests.e2e.cluster.support import own_place
from tests.e2e.cluster.twelve import FAILURES, provoked, wrongly

from bench.cluster.telling import bed
from bench.line import Line, at_least, bounded, compared
from bench.places import Options
from bench.timing import median

SECONDS = 10.0
ROWS = ("AC3", "US1-3", "C-top10")


def measure(options: Options) -> Iterator[Line]:
    """Yield the median and the worst, and how many were told rightly."""
    with own_place(bed(), "bench-twelve") as place:
        told = provoked(place)
    late = {name: one.late for name, one in told.items()}
    note = ", ".join(f"{name} {late[name]:.1f}" for name in sorted(late, key=late.__getitem__, reverse=True))
    title = "twelve failures, from going wrong to told whole"
    yield bounded(f"{title}, median", "s", median([*late.values()]), SECONDS, rows=ROWS)
    yield bounded(f"{title}, worst", "s", max(late.values()), SECONDS, f"{note} s", ROWS)
    wrong = {one.job.name: why for one in FAILURES if (why := wrongly(one, told[one.job.name]))}
    said = "; ".join(f"{name}: {why}" for name, why in wrong.items())
    right = len(FAILURES) - len(wrong)
    yield compared(f"{title}, cause", "right", right, len(FAILURES), at_least(1), note=said, rows=ROWS)
