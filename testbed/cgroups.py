"""The cgroups of the test bed: every process of it lives below one group, so that all can be found and ended.

Both generations are known: on cgroup v1 the group exists in every hierarchy, because the kubelet wants that.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from testbed import places
from testbed.shell import TestBedError, wait_for

_COMPONENTS = "components"


def hierarchies() -> tuple[Path, ...]:
    """Return the mount point of every cgroup hierarchy, the unified one first."""
    unified: list[Path] = []
    legacy: list[Path] = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, point = after.split()[0], Path(before.split()[4])
        if kind in ("cgroup", "cgroup2"):
            (unified if kind == "cgroup2" else legacy).append(point)
    return (*dict.fromkeys(unified), *dict.fromkeys(legacy))


def make() -> None:
    """Make the group in every hierarchy, and below it the one for components."""
    for hierarchy in hierarchies():
        (hierarchy / places.NAME).mkdir(exist_ok=True)
        for name in ("cpuset.cpus", "cpuset.mems"):  # v1: an empty set would hold no process
            if (hierarchy / "cgroup.clone_children").exists() and (hierarchy / name).exists():
                (hierarchy / places.NAME / name).write_text((hierarchy / name).read_text())
    for_components().mkdir(exist_ok=True)


def for_components() -> Path:
    """Return the group that a component joins before it starts: one hierarchy is enough to find it."""
    return hierarchies()[0] / places.NAME / _COMPONENTS


def processes() -> frozenset[int]:
    """Return the id of every process below the group."""
    folders = (folder for group in _groups() for folder, _, _ in os.walk(group))  # which bears groups that go
    return frozenset(pid for folder in folders for pid in _read_ids(Path(folder, "cgroup.procs")))


def end_processes() -> None:
    """End every process below the group, and wait until they are gone."""

    def none_is_left() -> bool:
        for pid in processes():
            _kill(pid)
        return not processes()

    if _groups():
        wait_for("the end of every process of the test bed", none_is_left, seconds=60, pause=0.1)


def remove() -> None:
    """Remove the group from every hierarchy; it must hold no process."""
    for group in _groups():
        wait_for(f"the removal of {group}", partial(_removed, group), seconds=20)


def _groups() -> tuple[Path, ...]:
    return tuple(one / places.NAME for one in hierarchies() if (one / places.NAME).is_dir())


def _removed(group: Path) -> bool:
    for folder, _, _ in os.walk(group, topdown=False):
        try:
            Path(folder).rmdir()
        except OSError:
            continue  # a process is on its way out: the next round
    return not group.exists()


def _read_ids(path: Path) -> Iterator[int]:
    try:
        yield from map(int, path.read_text().split())
    except OSError:
        return  # the group went away, or takes no processes of its own


def _kill(pid: int) -> None:
    if pid <= 1:
        raise TestBedError(f"process {pid} is in a group of the test bed: this is not ours to end")
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
