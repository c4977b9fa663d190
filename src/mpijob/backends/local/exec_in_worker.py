"""`exec`: a command of the user's inside a worker, with the user's terminal.

With a terminal, the worker's side gets a pseudo-terminal of its own, so that a shell there has job
control, and this side passes keys and screen through. Without one, the descriptors are handed over.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import tty
from pathlib import Path

from mpijob.backends.attempts.rank_stacks import worker_of
from mpijob.backends.local.worker.exec_server import ExecRequest, connect
from mpijob.errors import Conflict
from mpijob.model import JobState


def select_worker(state: JobState, worker: int | None, rank: int | None, *, workers_kept: bool) -> int:
    """Return the index of the worker that a command goes to; `kept`: the workers stay although the job has ended."""
    if not any(w.phase.active for w in state.workers) and not workers_kept:
        raise Conflict(f"job '{state.ref.name}' is {state.phase.value}: no worker runs")
    return worker_of(state, worker, rank)


def run(door: Path, argv: tuple[str, ...]) -> int:
    """Run the command in the worker and return its exit status."""
    if sys.stdin.isatty() and sys.stdout.isatty():
        return _with_terminal(door, argv)
    line = connect(door, ExecRequest(argv), (0, 1, 2))
    return _status(line.recv(16))


def _with_terminal(door: Path, argv: tuple[str, ...]) -> int:
    ours, theirs = os.openpty()
    size = termios.tcgetwinsize(0)
    termios.tcsetwinsize(theirs, size)
    term = {"TERM": os.environ.get("TERM", "xterm")}
    line = connect(door, ExecRequest(argv, term, True), (theirs, theirs, theirs))
    os.close(theirs)
    before = termios.tcgetattr(0)
    signal.signal(signal.SIGWINCH, lambda *_: termios.tcsetwinsize(ours, termios.tcgetwinsize(0)))
    try:
        tty.setraw(0, termios.TCSADRAIN)  # what was typed already is meant for the command
        _pass_through(ours, line.fileno())
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)
        signal.signal(signal.SIGWINCH, signal.SIG_DFL)
    return _status(line.recv(16))


def _pass_through(ours: int, line: int) -> None:
    while True:
        ready, _, _ = select.select([0, ours, line], [], [])
        if 0 in ready:
            os.write(ours, os.read(0, 4096))
        if ours in ready:
            try:
                os.write(1, os.read(ours, 65536))
            except OSError:  # the last holder of the other end has gone
                return
        elif line in ready:
            return


def _status(answer: bytes) -> int:
    return int(answer) if answer.isdigit() else 255
