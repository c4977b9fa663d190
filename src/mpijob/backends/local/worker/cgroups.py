"""A cgroup of its own for each worker, where a cgroup v2 directory was delegated to this user.

Then the kernel itself holds a worker to its memory and its cores, counts what it killed for memory,
and ends everything below at once, also what left its session. Nothing is made unless the settings
name the directory (`cgroup`) and allow it (`cgroups` is auto or on). Whether the directory can be used
is found by trying: its controllers must be there, and this process may be moved into it only where the
delegation covers both places. Elsewhere the rest of the engine does what it can: see `isolation`.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Iterable
from pathlib import Path

from mpijob.backends.local.worker import syscalls
from mpijob.errors import InvalidJob, Unsupported
from mpijob.settings import Settings

CONTROLLERS = ("memory", "cpu")
GUARANTEE = "cgroups limit each worker to its memory and cores, and kill its processes together"
_PERIOD_MICROSECONDS = 100_000
_WORDS = ("off", "auto", "on")


def choose_directory(settings: Settings) -> str:
    """Return the directory in which jobs get groups, "" for none; raise Unsupported when it must be and cannot."""
    if settings.cgroups not in _WORDS:
        raise InvalidJob(f"the setting cgroups is {settings.cgroups!r}; it can be {', '.join(_WORDS)}")
    if settings.cgroups == "off" or (settings.cgroups == "auto" and not settings.cgroup):
        return ""
    trouble = _problem(settings.cgroup) if settings.cgroup else "the setting cgroup names no directory"
    if trouble and settings.cgroups == "on":
        raise Unsupported(
            f"cgroups cannot be used: {trouble}",
            hint="ask for a delegated cgroup v2 directory with memory and cpu, or set cgroups = 'auto'",
        )
    return "" if trouble else settings.cgroup


@functools.cache
def _problem(directory: str) -> str:
    """Return why a directory cannot be used, found by trying it in a child; "" when it can."""
    try:
        there = (Path(directory) / "cgroup.controllers").read_text().split()
    except OSError as error:
        return f"{directory} is not a cgroup v2 directory ({error.strerror})"
    if missing := set(CONTROLLERS) - set(there):
        return f"{directory} has no {' and no '.join(sorted(missing))} controller"
    pid = os.fork()
    if pid == 0:
        syscalls.exit_now(_probe(Path(directory) / f"mpijob-try-{os.getpid()}"))
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    _remove(Path(directory) / f"mpijob-try-{pid}")
    return f"{directory}: {os.strerror(code)}" if code else ""


def _probe(group: Path) -> int:
    try:
        prepare(group, (0,), 1 << 30, 1.0)
        enter(worker_cgroup(group, 0))
    except OSError as error:
        return error.errno or 1
    return 0


def prepare(group: Path, workers: Iterable[int], memory_bytes: int, cores: float) -> None:
    """Make a job's group, and in it one for each worker with its limits."""
    _enable_controllers(group.parent)
    group.mkdir(mode=0o700, exist_ok=True)
    _enable_controllers(group)
    for index in workers:
        place = worker_cgroup(group, index)
        place.mkdir(mode=0o700, exist_ok=True)
        (place / "memory.max").write_text(str(memory_bytes))
        (place / "cpu.max").write_text(f"{round(cores * _PERIOD_MICROSECONDS)} {_PERIOD_MICROSECONDS}")
        if (place / "memory.swap.max").exists():
            (place / "memory.swap.max").write_text("0")  # the limit is one on memory, not on patience


def _enable_controllers(group: Path) -> None:
    (group / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in CONTROLLERS))


def attempt_cgroup(directory: str, uid: str, attempt: int) -> Path | None:
    """Return the group of one attempt of a job, None where jobs have none."""
    return Path(directory) / f"mpijob-{uid}-{attempt}" if directory else None


def worker_cgroup(group: Path, index: int) -> Path:
    """Return the group of one worker."""
    return group / f"worker-{index}"


def enter(group: Path) -> None:
    """Move this process into a group; what it starts from now on is in it too."""
    (group / "cgroup.procs").write_text("0")  # whoever writes is meant: right in every PID namespace


def oom_kills(group: Path) -> int:
    """Return how many processes of a group the kernel has killed because its memory was used up."""
    try:
        lines = (group / "memory.events").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def kill_and_remove(group: Path, *, seconds: float = 2.0) -> bool:
    """Kill everything in a job's group and remove it; return whether nothing of it is left."""
    if not group.is_dir():
        return True
    deadline = time.monotonic() + seconds
    while _populated(group) and time.monotonic() < deadline:
        try:
            (group / "cgroup.kill").write_text("1")
        except OSError:
            return False
        time.sleep(0.01)
    return _remove(group)


def _populated(group: Path) -> bool:
    try:
        return "populated 1" in (group / "cgroup.events").read_text()
    except OSError:
        return False


def _remove(group: Path) -> bool:
    try:
        for place in (*group.glob("worker-*"), group):
            place.rmdir()  # its files go with it: they are the kernel's
    except OSError:
        return False
    return True
