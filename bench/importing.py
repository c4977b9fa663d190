"""What the front door costs: `from mpijob import MPIJob` and making one, against a bare interpreter."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from bench.line import Line, at_most, compared
from bench.places import Options
from bench.timing import PASS, command, interleaved, median

MAKE = "from mpijob import MPIJob; MPIJob(name='first', workers=2, command=('true',))"


def measure(options: Options) -> Iterator[Line]:
    """Yield one line."""
    works = {
        "ours": lambda: command((sys.executable, "-c", MAKE)).wall,
        "pass": lambda: command(PASS).wall,
    }
    found = interleaved(options.rounds(41), works)
    ours, bare = (median(found[name]) * 1e3 for name in works)
    yield compared("import: MPIJob made", "ms", ours, bare, at_most(3), at_most(5))
