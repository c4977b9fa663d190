"""Turns on one cluster: tests of several processes run side by side, one that needs the cluster for itself runs alone.

A test marked `alone` stops the API server, fills the nodes or counts what is free: it waits until the tests of the
other processes have ended, and they wait for it. Run by one process, nobody waits.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_PLACE = "turns"


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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Run one test, with all that it sets up and takes down, when it is its turn."""
    place = getattr(item.config, "workerinput", {}).get(_PLACE)
    if place is None:
        return (yield)
    with _turn(Path(place), fcntl.LOCK_EX if item.get_closest_marker("alone") else fcntl.LOCK_SH):
        return (yield)


@contextmanager
def _turn(place: Path, how: int) -> Iterator[None]:
    """Hold the room; whoever waits for it alone holds the gate meanwhile, so that nobody new comes in."""
    with _lock(place / "room") as room:
        with _lock(place / "gate") as gate:
            fcntl.flock(gate, how)
            fcntl.flock(room, how)
        yield


@contextmanager
def _lock(path: Path) -> Iterator[int]:
    lock = os.open(path, os.O_CREAT | os.O_RDWR)
    try:
        yield lock
    finally:
        os.close(lock)
