"""Turns on one cluster: tests of several processes run side by side, one that needs the cluster for itself runs alone.

A test marked `alone` stops the API server, fills the nodes or counts what is free: it waits until the tests of the
other processes have ended, and they wait for it. All of these are given to one process, which has the cluster until
the last of them is done: to wait for the others before each would take longer than the tests themselves. The rest is
spread by files. Run by one process, nobody waits.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

_PLACE = "turns"
_HELD = pytest.StashKey[list[int]]()


class Turns:
    """Where the processes of one run take their turns; the main process makes and removes the place."""

    def __init__(self) -> None:
        self._place = tempfile.mkdtemp(prefix="mpijob-turns-")

    def pytest_configure_node(self, node: Any) -> None:
        """Tell a process where."""
        node.workerinput[_PLACE] = self._place

    def pytest_unconfigure(self) -> None:
        """Remove the place when every process has ended."""
        shutil.rmtree(self._place)


def pytest_configure(config: pytest.Config) -> None:
    """Make the place in the main process of a run with several."""
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Turns(), "turns-of-processes")


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let those that run alone follow each other, and the tests of a file stay together."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group("alone" if _is_alone(item) else item.path.stem))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """Run one test, with all that it sets up and takes down, when it is its turn."""
    place = getattr(item.config, "workerinput", {}).get(_PLACE)
    if place is None:
        return (yield)
    held = item.config.stash.setdefault(_HELD, [])
    turn = held.pop() if held else _turn(Path(place), fcntl.LOCK_EX if _is_alone(item) else fcntl.LOCK_SH)
    try:
        return (yield)
    finally:
        if nextitem is not None and _is_alone(item) and _is_alone(nextitem):
            held.append(turn)
        else:
            os.close(turn)


def _is_alone(item: pytest.Item) -> bool:
    return item.get_closest_marker("alone") is not None


def _turn(place: Path, how: int) -> int:
    """Return the room, locked; whoever waits for it alone holds the gate meanwhile, so that nobody new comes in."""
    room = _opened(place / "room")
    gate = _opened(place / "gate")
    try:
        fcntl.flock(gate, how)
        fcntl.flock(room, how)
    finally:
        os.close(gate)
    return room


def _opened(path: Path) -> int:
    return os.open(path, os.O_CREAT | os.O_RDWR)
