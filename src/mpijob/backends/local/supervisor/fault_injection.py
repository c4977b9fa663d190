"""Fault injection, for tests and demonstrations, by labels `fault.mpijob/…` of a job.

    fault.mpijob/kill-worker: "1_0.5"      kill worker 1 half a second after the start
    fault.mpijob/stop-worker: "1_0.5"      stop it (SIGSTOP): it exists, but sends no heartbeat
    fault.mpijob/kill-rank, kill-daemon, kill-launcher: "N_T"
    fault.mpijob/refuse-start: "1"         worker 1 refuses the MPI daemon
    fault.mpijob/drop-name: "1"            worker 1's name is not found
    fault.mpijob/clock-back: "3600_0.5"    the clock that supervisor and workers read goes an hour back
    fault.mpijob/clock-forward: "3600_0.5"

Faults are real signals to real processes. Only the machine's clock is not changed: `time.time` of supervisor and
workers is replaced.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Mapping
from typing import NamedTuple

from mpijob.backends.local.supervisor.attempt_spec import AttemptSpec
from mpijob.backends.local.worker import process_tree
from mpijob.observation.state.attempt_state import AttemptState

PREFIX = "fault.mpijob/"
_CLOCKS = {"clock-back": -1, "clock-forward": 1}
_VALUE = re.compile(r"([0-9]{1,6})(?:_([0-9]{1,6}(?:\.[0-9]{1,6})?))?")


class Fault(NamedTuple):
    """One fault; `number` is a worker, a rank or seconds of the clock, `seconds` the time from the start."""

    kind: str
    number: int
    seconds: float


def parse(labels: Mapping[str, str]) -> tuple[Fault, ...]:
    """Return the faults in a job's labels; invalid ones are ignored."""
    found = []
    for key, value in labels.items():
        match = _VALUE.fullmatch(value)
        if key.startswith(PREFIX) and match:
            found.append(Fault(key.removeprefix(PREFIX), int(match[1]), float(match[2] or 0)))
    return tuple(found)


class Faults:
    """The faults of one attempt; each happens once, when its time has come and its target exists."""

    def __init__(self, labels: Mapping[str, str], began: float) -> None:
        self._began = began
        self._waiting = list(parse(labels))
        for fault in self._waiting:
            if fault.kind in _CLOCKS:
                _shift_clock(_CLOCKS[fault.kind] * fault.number, began + fault.seconds)

    def inject(self, workers: Mapping[int, int], attempt_state: AttemptState, spec: AttemptSpec) -> None:
        for fault in list(self._waiting):
            due = time.monotonic() - self._began >= fault.seconds
            if due and _inject(fault, {index: pid for pid, index in workers.items()}, attempt_state, spec):
                self._waiting.remove(fault)


def _shift_clock(seconds: int, at: float) -> None:
    """Shift `time.time` of this process and its forks from a monotonic time on."""
    true, true_ns = time.time, time.time_ns
    time.time = lambda: true() + (seconds if time.monotonic() >= at else 0)
    time.time_ns = lambda: true_ns() + (seconds * 1_000_000_000 if time.monotonic() >= at else 0)


def _inject(fault: Fault, workers: Mapping[int, int], attempt_state: AttemptState, spec: AttemptSpec) -> bool:
    directory = next((w.directory for w in spec.workers() if w.index == fault.number), None)
    match fault.kind:
        case "kill-worker" | "stop-worker" if attempt_state.proved and fault.number in workers:
            number = signal.SIGKILL if fault.kind == "kill-worker" else signal.SIGSTOP
            process_tree.send_signal(workers[fault.number], number)
        case "kill-daemon" if attempt_state.proved and fault.number in workers:
            table = process_tree.table()
            for process in table.values():
                if process.parent == workers[fault.number]:
                    _kill_daemon(process, table)
        case "kill-rank" if attempt_state.proved and fault.number in attempt_state.ranks:
            _kill_descendants(attempt_state.ranks[fault.number].pid)
        case "kill-launcher" if attempt_state.proved and attempt_state.launcher_pid:
            process_tree.send_signal(attempt_state.launcher_pid, signal.SIGKILL)
        case "refuse-start" if directory is not None and not attempt_state.launcher_started:
            (directory / "refuse").touch()
        case "drop-name" if directory is not None and not attempt_state.launcher_started:
            (directory / "dropped").touch()
        case _:
            return False
    return True


def _kill_daemon(child: process_tree.Process, table: Mapping[int, process_tree.Process]) -> None:
    # The worker's child may be a shell that waits for the daemon.
    below = process_tree.descendants(child.pid, table) if child.name == "sh" else []
    process_tree.send_signal(next((p.pid for p in below if p.parent == child.pid), child.pid), signal.SIGKILL)


def _kill_descendants(pid: int) -> None:
    for process in process_tree.descendants(pid, process_tree.table()):
        process_tree.send_signal(process.pid, signal.SIGKILL)
