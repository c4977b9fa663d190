"""The process table: which processes are ours, what they are, what memory they hold.

A job's processes live in a PID namespace of their own; here they are found from outside, by their
parents and by what they hold open.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable
from pathlib import Path

RUNNER = "mpijob.backends.local.queue.runner"
SHELLS = ("sh", "dash", "bash")
OURS = (RUNNER, "rank.sh", "/agent-")


def ours(home: Path) -> list[int]:
    """Return our processes of a home: runner, supervisor, workers, start agents and the ranks' shims.

    MPI's own processes and the user's program are not ours. Nor is whoever only looks at the job.
    """
    return [pid for pid in pids() if _is_ours(pid) and _belongs(pid, home)]


def _is_ours(pid: int) -> bool:
    line = command_line(pid)
    program = os.path.basename(line.partition(" ")[0])
    return program.startswith(("python", *SHELLS)) and any(word in line for word in OURS)


def _belongs(pid: int, home: Path) -> bool:
    if str(home) in command_line(pid):
        return True
    held = [f"/proc/{pid}/fd/2", *(f"/proc/{pid}/fd/{fd}" for fd in (1, 0)), f"/proc/{pid}/cwd"]
    return any(_target(path).startswith(str(home)) for path in held)


def _target(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def end(wanted: Iterable[int]) -> None:
    """Kill some processes; one that is gone already is no error."""
    for pid in wanted:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def pids() -> list[int]:
    """Return every process that /proc shows."""
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def command_line(pid: int) -> str:
    """Return a process's words in one line; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def parents() -> dict[int, int]:
    """Return every process's parent."""
    found = {}
    for pid in pids():
        try:
            text = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            continue
        found[pid] = int(text.rpartition(")")[2].split()[1])
    return found


def below(root: int, parent_of: dict[int, int]) -> list[int]:
    """Return all processes below one, in the order of their pids."""
    found, todo = [], [root]
    while todo:
        top = todo.pop()
        children = [pid for pid, parent in parent_of.items() if parent == top]
        found += children
        todo += children
    return sorted(found)


def pss_bytes(wanted: Iterable[int]) -> int:
    """Return the memory of some processes, each shared page counted in equal parts by its users."""
    return sum(_pss(pid) for pid in wanted)


def _pss(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0
