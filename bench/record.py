"""The results file: every line with when and on what machine it was measured, over many runs.

A run measures some parts on one machine. What it measured takes the place of what the same machine measured
before; lines of other parts and of other machines stay. So the figures of a large machine, to which one comes
seldom, stay beside those of a small one. Standard library only: the tables are made where nothing is installed.
"""

from __future__ import annotations

import json
import math
import os
import platform
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.line import Line

Entry = Mapping[str, Any]
_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def cores(group: Path = _QUOTA) -> int:
    """Return how many cores this process may keep busy: those it may run on, or as its group's quota says."""
    allowed = len(os.sched_getaffinity(0))
    try:
        quota, period = group.read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return allowed
    return allowed if quota == "max" else max(1, min(allowed, math.floor(int(quota) / int(period))))


def processor() -> str:
    """Return the processor's name as the kernel has it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())


@dataclass(frozen=True)
class Run:
    """One part that was measured: its name, when, on what, and whether time was short."""

    part: str
    time: str
    quick: bool
    machine: Mapping[str, Any]

    def entry(self, line: Line) -> Entry:
        """Return a line as it is kept."""
        told = {"part": self.part, "time": self.time, "quick": self.quick, "machine": dict(self.machine)}
        return {**line.value(), **told}


def this_run(part: str, *, quick: bool, load: float = 0.0) -> Run:
    """Return the run of a part that has just ended, on this machine; `load` is what others put on it before."""
    machine: dict[str, Any] = {
        "cores": cores(),
        "processor": processor(),
        "python": platform.python_version(),
    }
    machine |= {"load": round(load, 1)} if load else {}
    return Run(part, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), quick, machine)


def load(path: Path) -> tuple[Entry, ...]:
    """Return the lines that are kept in a file; those that do not tell when they were measured are left out."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return ()
    return tuple(entry for entry in document["lines"] if "time" in entry)


def store(path: Path, run: Run, lines: Sequence[Line]) -> None:
    """Add what a run measured to a results file."""
    kept = merged(load(path), [run.entry(line) for line in lines])
    path.write_text(json.dumps({"lines": kept}, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def merged(before: Iterable[Entry], now: Sequence[Entry]) -> list[Entry]:
    """Return the lines of former runs with those of a new one, in the order in which they first came.

    A quick line never takes the place of a full one, nor a line without figures that of a line with them, on
    whatever machine. What a part no longer measures is dropped for the machine that has just measured the part.
    """
    old = [entry for entry in before if not _dropped(entry, now)]
    fresh = [entry for entry in now if not any(_outweighs(one, entry) for one in old)]
    newer = {_key(entry): entry for entry in fresh}
    figures = {entry["name"] for entry in fresh if "missing" not in entry}
    stays = [one for one in old if "missing" not in one or one["name"] not in figures]
    kept = [newer.pop(_key(one), one) for one in stays]
    return [*kept, *newer.values()]


def _machine(entry: Entry) -> tuple[int, str]:
    return entry["machine"]["cores"], entry["machine"].get("processor", "")


def _key(entry: Entry) -> tuple[object, ...]:
    """Return what makes a line the same as another: a line without figures is the same on every machine."""
    return entry["name"], *(() if "missing" in entry else _machine(entry))


def _whole_part(entry: Entry) -> bool:
    """Return whether a line says that a part as a whole could not be measured."""
    return "missing" in entry and entry["name"] == entry["part"]


def _outweighs(old: Entry, new: Entry) -> bool:
    same = old["part"] == new["part"] if _whole_part(new) else old["name"] == new["name"]
    if not same or "missing" in old:
        return False
    return "missing" in new or (_machine(old) == _machine(new) and new["quick"] and not old["quick"])


def _dropped(old: Entry, now: Sequence[Entry]) -> bool:
    """Return whether its part has now run whole without this line; for figures only the same machine counts."""
    part = [one for one in now if one["part"] == old["part"]]
    same = part if _whole_part(old) else [one for one in part if _machine(one) == _machine(old)]
    if not same or any(map(_whole_part, same)) or (same[0]["quick"] and not old["quick"]):
        return False
    return old["name"] not in {one["name"] for one in same}
