"""What was measured: the records of bench/, read for the requirement table and the page of figures.

`bench.record` writes the files, each line with when and on what machine. Standard library only.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILES = {
    "local": ROOT / "bench" / "results.json",
    "cluster": ROOT / "bench" / "cluster" / "results.json",
    "page": ROOT / "bench" / "page-results.json",
    "services": ROOT / "bench" / "soak" / "results.json",
    "faults": ROOT / "tests/e2e/cluster" / "faults.json",
}


@dataclass(frozen=True)
class Figure:
    """One measured line: `ratio` is what `goal` (what we want) and `must` (what is asked for) bound."""

    name: str
    part: str = ""
    ours: float = 0.0
    reference: float = 0.0
    ratio: float = 0.0
    unit: str = ""
    goal: str = ""
    holds: bool | None = None
    must: str = ""
    must_holds: bool | None = None
    note: str = ""
    missing: str = ""
    ids: tuple[str, ...] = ()
    time: str = ""
    quick: bool = False
    cores: int = 0
    processor: str = ""
    load: float = 0.0

    @property
    def verdict(self) -> str:
        """Say whether what is asked for holds: that is `must`, or `goal` where that is all there is."""
        if self.missing:
            return "not measured"
        kept = self.holds if self.must_holds is None else self.must_holds
        return "measured" if kept is None else "held" if kept else "missed"

    @property
    def day(self) -> str:
        """The day of the measurement."""
        return self.time[:10]

    @property
    def machine(self) -> str:
        """What it was measured on, as people read it, and that others kept it busy where they did."""
        busy = f" with load {self.load:.0f}" if self.load > self.cores else ""
        return f"{self.cores} core{'' if self.cores == 1 else 's'}{busy}"

    def __str__(self) -> str:
        if self.missing:
            return f"not measured: {self.name}: {self.missing}"
        bounds = ", ".join(
            word for word in (self.must and f"asked {self.must}", self.goal and f"goal {self.goal}") if word
        )
        where = ", ".join([self.machine, self.day, *(["quick"] if self.quick else [])])
        return f"{self.verdict}: {self.name}: {self.said}{f' ({bounds})' if bounds else ''}; {where}"

    @property
    def said(self) -> str:
        """The figure, beside what it is compared with where there is such a thing."""
        ours, reference = (f"{number(value)} {self.unit}".rstrip() for value in (self.ours, self.reference))
        if not self.goal and not self.must and not self.reference:
            return ours
        return f"{ours} against {reference}, ratio {number(self.ratio)}"


def number(value: float) -> str:
    """Return a figure with three digits that mean something."""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def recorded(path: Path) -> tuple[Figure, ...]:
    """Return the lines of a results file; none where nothing was measured yet."""
    try:
        lines = json.loads(path.read_text(encoding="utf-8"))["lines"]
    except FileNotFoundError:
        return ()
    return tuple(_figure(line) for line in lines if "time" in line)


def _figure(line: dict[str, object]) -> Figure:
    machine = line["machine"]
    assert isinstance(machine, dict)
    rows = line.get("rows", ())
    assert isinstance(rows, list | tuple)
    kept = {name: value for name, value in line.items() if name in _PLAIN and value is not None}
    place = {name: machine[name] for name in ("cores", "processor", "load") if name in machine}
    return Figure(**kept, **place, ids=tuple(rows))  # type: ignore[arg-type] # as `bench.record` wrote them


_PLAIN = {"name", "part", "ours", "reference", "ratio", "unit", "goal", "holds", "must", "must_holds", "note",
          "missing", "time", "quick"}  # fmt: skip
