"""Starting a runner: the only thing that a submitting process does for the running of its job.

What a runner does is in `runner`, which is not loaded here: start-up is a feature.
"""

from __future__ import annotations

import os
import subprocess
import sys

import msgspec

from mpijob.backends.local.paths import Home
from mpijob.settings import Settings


def start(home: Home, settings: Settings) -> None:
    """Start a runner that outlives this process."""
    command = [sys.executable, "-c", "from mpijob.backends.local.runner import main; main()"]
    log = os.open(home.runner_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=log,
            cwd="/",
            start_new_session=True,
            env=_environ(),
        )
    finally:
        os.close(log)
    assert child.stdin is not None
    child.stdin.write(msgspec.json.encode(msgspec.structs.replace(settings, home=str(home.root))))
    child.stdin.close()
    child.wait()


def _environ() -> dict[str, str]:
    """Return what a runner needs of our environment: it must find this very package, no more."""
    kept = (
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "LANG",
        "LC_ALL",
        "TZ",
        "COVERAGE_PROCESS_START",
        "COVERAGE_PROCESS_CONFIG",
        "COVERAGE_FILE",
    )
    found = {name: os.environ[name] for name in kept if name in os.environ}
    found |= {name: value for name, value in os.environ.items() if name.startswith("COV_CORE")}
    return found | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
