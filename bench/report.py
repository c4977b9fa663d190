"""The table on the screen. How lines are kept is the business of `record`."""

from __future__ import annotations

from collections.abc import Sequence

from bench.line import Line

HEADER = ("measurement", "ours", "reference", "unit", "ratio", "goal", "holds", "must", "holds", "note")
RIGHT = {1, 2, 4}


def table(lines: Sequence[Line]) -> str:
    """Return the lines as an aligned table."""
    rows = [HEADER, *(_cells(line) for line in lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    return "\n".join(_aligned(row, widths) for row in rows)


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [
        cell.rjust(width) if column in RIGHT else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(cells).rstrip()


def _cells(line: Line) -> tuple[str, ...]:
    goal, must = (str(bound) if bound else "-" for bound in (line.goal, line.must))
    verdicts = (goal, _yes(line.holds), must, _yes(line.must_holds))
    if line.missing:
        return (line.name, "-", "-", "-", "-", *verdicts, f"not measured: {line.missing}")
    figures = (_figure(line.ours), _figure(line.reference), line.unit, _figure(line.ratio))
    return (line.name, *figures, *verdicts, line.note)


def _figure(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _yes(holds: bool | None) -> str:
    return "-" if holds is None else "yes" if holds else "no"
