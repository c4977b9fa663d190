"""What time decides: who is silent because he was stopped, and who only waits for a core. Real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from mpijob.backends.local.supervisor import deadlines
from mpijob.backends.local.supervisor.deadlines import SILENT_SECONDS, STARVED_SECONDS, Deadlines
from mpijob.backends.local.worker import process_tree
from mpijob.observation.state.attempt_state import AttemptState

from .test_attempt import a_plan


class SetClock:
    """A clock that goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SetClock:
    clock = SetClock()
    monkeypatch.setattr(deadlines, "time", clock)
    return clock


@pytest.fixture
def worker() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        yield process
        process.kill()


def a_watch(clock: SetClock) -> tuple[Deadlines, AttemptState]:
    """Return the clock of an attempt whose worker 0 has just spoken, and its ledger."""
    plan = a_plan()
    ledger = AttemptState(plan, clock.now)
    watch = Deadlines(plan, ledger)
    watch.worker_is_alive(0)
    return watch, ledger


def listen(watch: Deadlines, clock: SetClock, pid: int, seconds: float) -> list[int]:
    """Return who is found silent, second by second, until somebody is or the time is over."""
    for _ in range(int(seconds)):
        clock.now += 1.0
        if quiet := watch.find_silent({pid: 0}):
            return quiet
    return []


@pytest.mark.req("SC-005")
def test_a_worker_that_was_stopped_is_lost_soon(clock: SetClock, worker: subprocess.Popen[bytes]) -> None:
    worker.send_signal(signal.SIGSTOP)
    os.waitpid(worker.pid, os.WUNTRACED)  # until it has
    watch, ledger = a_watch(clock)
    assert listen(watch, clock, worker.pid, SILENT_SECONDS) == []
    assert listen(watch, clock, worker.pid, 1) == [0]
    assert ledger.stopped_message == "worker 0 has been silent for 4 s"


def test_a_worker_that_a_busy_machine_keeps_waiting_is_not_lost_soon(
    clock: SetClock, worker: subprocess.Popen[bytes]
) -> None:
    watch, ledger = a_watch(clock)
    assert listen(watch, clock, worker.pid, STARVED_SECONDS) == []
    assert ledger.stopped is None
    assert listen(watch, clock, worker.pid, 1) == [0]  # it is stuck


def test_who_did_not_listen_calls_nobody_silent(clock: SetClock, worker: subprocess.Popen[bytes]) -> None:
    watch, _ = a_watch(clock)
    clock.now += 10 * STARVED_SECONDS
    assert watch.find_silent({worker.pid: 0}) == []
    assert listen(watch, clock, worker.pid, STARVED_SECONDS) == []
    assert listen(watch, clock, worker.pid, 1) == [0]


def test_a_process_that_is_gone_is_not_stopped(worker: subprocess.Popen[bytes]) -> None:
    worker.kill()
    worker.wait()
    assert not process_tree.is_stopped(worker.pid)
