"""What a runner writes down of its job's supervisor is there, or is written again: who cancels looks for it."""

from __future__ import annotations

import os
import select
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from mpijob.backends.local.planning import machine
from mpijob.backends.local.queue import runner
from mpijob.backends.local.queue.store import Store
from mpijob.backends.local.worker import process_tree
from mpijob.errors import BackendError


class FullDisk:
    """A store that hears every word and has room for them only after some refusals."""

    def __init__(self, refusals: int, then: Callable[[], object]) -> None:
        self.refusals, self.then = refusals, then
        self.heard: list[tuple[Any, ...]] = []
        self.kept: list[tuple[Any, ...]] = []

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        yield cast(sqlite3.Connection, self)
        if self.refusals:
            self.refusals -= 1
            raise BackendError("database or disk is full")
        self.kept = self.heard[-1:]
        self.then()

    def execute(self, _sql: str, values: tuple[Any, ...]) -> None:
        self.heard.append(values)


@pytest.mark.thorough
def test_a_supervisor_that_found_no_room_on_the_disk_is_noted_when_there_is_some() -> None:
    wait, go = os.pipe()

    def ends_when_noted() -> None:
        select.select([wait], [], [], 20)

    supervisor = process_tree.fork_child(ends_when_noted)
    identity, store = machine.process_identity(supervisor), FullDisk(2, then=lambda: os.write(go, b"1"))
    assert runner._wait_recorded(cast(Store, store), "uid", supervisor) == 0
    assert store.kept == [(identity, "uid")]
