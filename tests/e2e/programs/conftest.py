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
    results = [row[3] for row in rows]
    equal, wrong = results.count("equal"), sum(one.startswith("WRONG WORLD") for one in results)
    ways = sum(one.startswith(("one world", "refused")) for one in results)
    compared = len(results) - ways
    write(
        f"{len({row[0] for row in rows})} programs, {compared} cases compared: {equal} equal; {ways} hidden ways "
        f"kept their world or were refused; {wrong} wrong worlds"
    )
