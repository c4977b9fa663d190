"""The table on the screen. How lines are kept is the business of `record`."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from bench.line import Line

HEADER = ("measurement", "ours", "reference", "unit", "ratio", "goal", "holds", "must", "holds", "note")
RIGHT = {1, 2, 4}


def table(lines: Sequence[Line]) -> str:
    """Return the lines as an aligned table."""
    return aligned([HEADER, *(_cells(line) for line in lines)], RIGHT)


def aligned(rows: Sequence[Sequence[str]], right: Collection[int]) -> str:
    """Return rows of words with their columns below each other; some columns stand at their right edge."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(_aligned(row, widths, right) for row in rows)


def _aligned(row: Sequence[str], widths: Sequence[int], right: Collection[int]) -> str:
    cells = [
        cell.rjust(width) if column in right else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(cells).rstrip()


def _cells(line: Line) -> tuple[str, ...]:
    goal, must = (str(bound) if bound else "-" for bound in (line.goal, line.must))
    verdicts = (goal, _yes(line.holds), must, _yes(line.must_holds))
    if line.missing:
        return (line.name, "-", "-", "-", "-", *verdicts, f"not measured: {line.missing}")
    compared = (
        (_figure(line.reference), line.unit, _figure(line.ratio)) if line.reference else ("-", line.unit, "-")
    )
    figures = (_figure(line.ours), *compared)
    return (line.name, *figures, *verdicts, line.note)


def _figure(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _yes(holds: bool | None) -> str:
    return "-" if holds is None else "yes" if holds else "no"
