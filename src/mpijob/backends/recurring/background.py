"""Python programs that outlive this process, and the pipes on which they listen."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec

from mpijob.backends.state_home import StateHome
from mpijob.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = "MPIJOB_RUNNER_SETTINGS"
_KEPT = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "XDG_RUNTIME_DIR", "TMPDIR", "SLURM_CONF",
         "COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG", "COVERAGE_FILE")  # fmt: skip


def wake_listener(wakeup_pipe: Path) -> bool:
    """Wake whoever listens on a pipe; return False when nobody does."""
    try:
        fd = os.open(wakeup_pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:  # no pipe, or nobody at its other end
        return False
    try:
        os.write(fd, b"\n")
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def start(home: StateHome, settings: Settings, program: str) -> None:
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
