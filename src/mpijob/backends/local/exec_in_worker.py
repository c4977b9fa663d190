"""The client of `mpijob exec`: runs a command inside a worker, with the user's terminal.

The worker gets a pseudo-terminal, so that a shell there has job control, and this process copies between the two
terminals. Without a terminal, the worker gets this process's own descriptors. The worker's side is `exec_server`.
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
    """Return the index of the worker for a command; `workers_kept`: a failed job's workers are kept for inspection.

    Raise Conflict if no worker runs.
    """
    if not any(w.phase.active for w in state.workers) and not workers_kept:
        raise Conflict(f"job '{state.ref.name}' is {state.phase.value}: no worker runs")
    return worker_of(state, worker, rank)


def run(socket_path: Path, argv: tuple[str, ...]) -> int:
    """Run the command in the worker and return its exit status."""
    if sys.stdin.isatty() and sys.stdout.isatty():
        return _with_terminal(socket_path, argv)
    connection = connect(socket_path, ExecRequest(argv), (0, 1, 2))
    return _status(connection.recv(16))


def _with_terminal(socket_path: Path, argv: tuple[str, ...]) -> int:
    controller, terminal = os.openpty()
    termios.tcsetwinsize(terminal, termios.tcgetwinsize(0))
    environ = {"TERM": os.environ.get("TERM", "xterm")}
    connection = connect(socket_path, ExecRequest(argv, environ, True), (terminal, terminal, terminal))
    os.close(terminal)
    before = termios.tcgetattr(0)
    signal.signal(signal.SIGWINCH, lambda *_: termios.tcsetwinsize(controller, termios.tcgetwinsize(0)))
    try:
        # Not TCSAFLUSH, the default, which drops what was typed already.
        tty.setraw(0, termios.TCSADRAIN)
        _pass_through(controller, connection.fileno())
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)
        signal.signal(signal.SIGWINCH, signal.SIG_DFL)
    return _status(connection.recv(16))


def _pass_through(controller: int, connection: int) -> None:
    while True:
        ready, _, _ = select.select([0, controller, connection], [], [])
        if 0 in ready:
            os.write(controller, os.read(0, 4096))
        if controller in ready:
            # EIO: no process has the other end open any more.
            try:
                os.write(1, os.read(controller, 65536))
            except OSError:
                return
        # Only when the terminal is silent, so that the command's last output is not lost.
        elif connection in ready:
            return


def _status(answer: bytes) -> int:
    return int(answer) if answer.isdigit() else 255
