"""One line of the result: what was measured, against what, and whether the goal holds.

How lines are printed and stored is the business of `report`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


class Unmeasured(Exception):
    """A measurement could not be made; the text says why."""


@dataclass(frozen=True)
class Bound:
    """A limit for a ratio: at most, or at least, this much."""

    value: float
    at_least: bool = False

    def holds(self, ratio: float) -> bool:
        """Return whether a ratio keeps the limit."""
        return ratio >= self.value if self.at_least else ratio <= self.value

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.value:g}"


def at_most(value: float) -> Bound:
    """Return an upper limit."""
    return Bound(value)


def at_least(value: float) -> Bound:
    """Return a lower limit."""
    return Bound(value, at_least=True)


@dataclass(frozen=True)
class Line:
    """One measurement. `ours` and `reference` are in `unit`; `ratio` is held against `goal` and `must`.

    A line without a goal is shown for comparison. `missing` says why there are no figures. `rows` are the ids of
    docs/requirements.toml that the line measures: what such a row asks for is `must`, or `goal` where that is all.
    """

    name: str
    unit: str = ""
    ours: float = 0.0
    reference: float = 0.0
    ratio: float = 0.0
    goal: Bound | None = None
    must: Bound | None = None
    note: str = ""
    missing: str = ""
    rows: tuple[str, ...] = ()

    @property
    def holds(self) -> bool | None:
        """Whether the goal is reached; None where there is no goal or no figure."""
        return None if self.goal is None or self.missing else self.goal.holds(self.ratio)

    @property
    def must_holds(self) -> bool | None:
        """Whether the limit that must hold does; None where there is none."""
        return None if self.must is None or self.missing else self.must.holds(self.ratio)

    def value(self) -> dict[str, Any]:
        """Return the line as it is written to the results file."""
        figures = {"ours": self.ours, "reference": self.reference, "ratio": self.ratio, "unit": self.unit}
        return {
            "name": self.name,
            **({"missing": self.missing} if self.missing else figures),
            "goal": None if self.goal is None else str(self.goal),
            "holds": self.holds,
            "must": None if self.must is None else str(self.must),
            "must_holds": self.must_holds,
            "note": self.note,
            "rows": list(self.rows),
        }


def compared(
    name: str,
    unit: str,
    ours: float,
    reference: float,
    goal: Bound | None = None,
    must: Bound | None = None,
    note: str = "",
    rows: tuple[str, ...] = (),
) -> Line:
    """Return a line whose ratio is ours over the reference."""
    return Line(name, unit, ours, reference, ours / reference, goal, must, note, rows=rows)


def bounded(
    name: str, unit: str, ours: float, bound: float, note: str = "", rows: tuple[str, ...] = ()
) -> Line:
    """Return a line that is held against a bound in its own unit: the ratio is the part of it that is used."""
    return Line(name, unit, ours, bound, ours / bound, at_most(1.0), note=note, rows=rows)
