"""Start Python programs that outlive this process, and wake them through named pipes.

The programs are runners of the local engine and the scheduler of recurring jobs; there is no daemon
(docs/decisions/0007).
"""

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
    """Wake the process that listens on a named pipe; return False if none does."""
    try:
        fd = os.open(wakeup_pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.write(fd, b"\n")
        finally:
            os.close(fd)
    except OSError:
        # There is no pipe, or (ENXIO) no process has it open for reading.
        return False
    return True


def start(home: StateHome, settings: Settings, program: str) -> None:
    """Start a Python program that outlives this process; its standard error is `home.runner_log`."""
    # The shell exits at once, and init adopts the program: this process has no child to wait for.
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
    """Return the environment of a background program, which imports this very package."""
    # Not all variables: the program runs later jobs, to which this shell's variables do not belong.
    environ = {name: os.environ[name] for name in _KEPT if name in os.environ}
    environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    return environ | {SETTINGS: msgspec.json.encode(settings).decode()}
