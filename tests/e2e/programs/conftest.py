"""What all programs are built into, and the table at the end of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from . import runs

COLUMNS = ("program", "MPI", "layout", "result", "plain s", "mpijob s")


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("programs")
    runs.build(place)
    return place


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print a row for each case, and how many were equal, excepted, and in a wrong world."""
    rows = [
        [str(value) for value in dict(report.user_properties)["row"]]
        for outcome in ("passed", "failed", "xfailed", "xpassed")
        for report in terminalreporter.stats.get(outcome, ())
        if "row" in dict(report.user_properties)
    ]
    if not rows:
        return
    widths = [max(map(len, column)) for column in zip(COLUMNS, *rows, strict=True)]
    write = terminalreporter.write_line
    terminalreporter.section("programs beside plain mpirun")
    for row in (COLUMNS, *rows):
        write("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    compared = [row for row in rows if row[4]]
    ways = [row for row in rows if not row[4]]  # plain mpirun has no part in the hidden ways
    equal, wrong = (sum(row[3].startswith(result) for row in rows) for result in ("equal", "WRONG WORLD"))
    kept = sum(row[3] == "one world" for row in ways)
    write(
        f"{len({row[0] for row in compared})} programs in {len(compared)} cases: {equal} equal; {len(ways)} hidden "
        f"ways: {kept} in one world, the others ended; {wrong} wrong worlds"
    )
