"""Waking a runner, or starting one: all that a submitting process does for the running of its job.

A runner that has nothing to do listens for a while on a pipe in the engine's home; whoever submits
says a word there, and starts a new runner only when nobody listens. What a runner does is in
`runner`, which is not loaded here: start-up is a feature.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec

from mpijob.backends.local.storage.paths import Home
from mpijob.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = "MPIJOB_RUNNER_SETTINGS"
_RUNNER = "from mpijob.backends.local.queue.runner import main; main()"
_KEPT = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "XDG_RUNTIME_DIR", "TMPDIR",
         "COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG", "COVERAGE_FILE")  # fmt: skip


def wake(home: Home, settings: Settings) -> None:
    """See to it that somebody looks at the queue."""
    if not nudge(home):
        start_runner(home, settings)


def start_runner(home: Home, settings: Settings) -> None:
    """Start a runner, though another may listen."""
    start(home, settings, _RUNNER)


def nudge(home: Home) -> bool:
    """Wake a runner that listens; return False when none does."""
    return ring(home.bell)


def ring(bell: Path) -> bool:
    """Wake whoever listens on a pipe; return False when nobody does."""
    try:
        fd = os.open(bell, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:  # no pipe, or nobody at its other end
        return False
    try:
        os.write(fd, b"\n")
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def start(home: Home, settings: Settings, program: str) -> None:
    """Start a Python program that outlives this process; the shell between us leaves no child to wait for."""
    python = [sys.executable, "-c", program]
    log = os.open(home.runner_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        subprocess.run(
            ["/bin/sh", "-c", '"$@" &', "sh", *python],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            cwd="/",
            start_new_session=True,
            env=_environ(msgspec.structs.replace(settings, home=str(home.root))),
            check=False,
        )
    finally:
        os.close(log)


def _environ(settings: Settings) -> dict[str, str]:
    """Return what a runner needs of our environment: it must find this very package, no more."""
    found = {name: os.environ[name] for name in _KEPT if name in os.environ}
    found["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    return found | {SETTINGS: msgspec.json.encode(settings).decode()}
