"""The components of the node as processes: started in its namespaces and its cgroup, known by their names.

What they say goes to a file each, in the run state. How all of them end together: `cgroups`.
"""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from testbed import cgroups, isolation, places
from testbed.shell import TestBedError, wait_for

# Two cores and much memory: Go's collector took a fifth of the API server's time, and waits for more garbage here.
LAZY_COLLECTION = "GOGC=400"
HOLDER = "registry"  # the first process of the node: its namespaces are everybody's
_JOIN = 'echo $$ > "$0/cgroup.procs" && exec env "$@"'


def start_holder(*argv: str | Path) -> None:
    """Start the first process of the node, which brings its namespaces into being."""
    _spawn(HOLDER, isolation.apart(*argv))


def start(name: str, *argv: str | Path) -> None:
    """Start a component in the namespaces of the node."""
    _spawn(name, inside(*argv))


def inside(*argv: str | Path) -> tuple[str | Path, ...]:
    """Return a command that runs to its end in the namespaces of the node."""
    return isolation.inside(process_id(HOLDER), *argv)


def stop(name: str) -> None:
    """Stop one component; nothing happens when it does not run."""
    if not is_running(name):
        return
    pid = process_id(name)
    os.kill(pid, signal.SIGTERM)
    try:
        wait_for(f"the end of {name}", lambda: not is_running(name), seconds=10)
    except TestBedError:
        os.kill(pid, signal.SIGKILL)
        wait_for(f"the end of {name}", lambda: not is_running(name), seconds=10)
    _file(name).unlink()


def is_running(name: str) -> bool:
    """Return whether a component runs: its process must still be one of ours."""
    return _file(name).exists() and process_id(name) in cgroups.processes()


def started() -> tuple[str, ...]:
    """Return the names of the components that were started, in that order."""
    folder = _file(HOLDER).parent
    files = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns) if folder.is_dir() else []
    return tuple(path.name for path in files)


def process_id(name: str) -> int:
    """Return the process id of a component."""
    return int(_file(name).read_text())


def last_words(name: str) -> str:
    """Return the end of what a component said."""
    return "\n".join(log(name).read_text(errors="replace").splitlines()[-5:])


def log(name: str) -> Path:
    """Return the file that a component writes to."""
    return places.logs() / f"{name}.log"


def check(name: str) -> None:
    """Raise when a component has ended, with its last words."""
    if not is_running(name):
        raise TestBedError(f"{name} ended; its last words:\n{last_words(name)}")


def _spawn(name: str, argv: tuple[str | Path, ...]) -> None:
    places.logs().mkdir(parents=True, exist_ok=True)
    _file(name).parent.mkdir(parents=True, exist_ok=True)
    command = ["sh", "-c", _JOIN, cgroups.for_components(), LAZY_COLLECTION, *argv]
    with log(name).open("ab") as out:
        child = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            cwd="/",
        )
    _file(name).write_text(str(child.pid))
    wait_for(f"the start of {name}", lambda: _has_joined(child), seconds=10, pause=0.01)


def _has_joined(child: subprocess.Popen[bytes]) -> bool:
    return child.pid in cgroups.processes() or child.poll() is not None


def _file(name: str) -> Path:
    return places.run_state() / "processes" / name
