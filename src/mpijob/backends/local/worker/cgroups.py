"""A cgroup for each worker, below a cgroup v2 directory that was delegated to this user (setting `cgroup`).

The kernel then limits a worker's memory and cores, counts its OOM kills, and kills all its processes at once, also
those that left its session. Without a delegated directory, `isolation` says what holds instead.
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
    """Return the directory for cgroups of jobs, "" for none; raise Unsupported if one is required and unusable."""
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
    """Return why a directory cannot be used, "" if it can."""
    try:
        controllers = (Path(directory) / "cgroup.controllers").read_text().split()
    except OSError as error:
        return f"{directory} is not a cgroup v2 directory ({error.strerror})"
    if missing := set(CONTROLLERS) - set(controllers):
        return f"{directory} has no {' and no '.join(sorted(missing))} controller"
    # By trying, in a child that moves itself: the kernel allows a move only to a user who may also write to the
    # common ancestor of both cgroups (cgroups(7)), so the directory's own permissions do not tell.
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
    """Create the cgroup of an attempt and those of its workers, with their limits."""
    _enable_controllers(group.parent)
    group.mkdir(mode=0o700, exist_ok=True)
    _enable_controllers(group)
    for index in workers:
        worker = worker_cgroup(group, index)
        worker.mkdir(mode=0o700, exist_ok=True)
        (worker / "memory.max").write_text(str(memory_bytes))
        (worker / "cpu.max").write_text(f"{round(cores * _PERIOD_MICROSECONDS)} {_PERIOD_MICROSECONDS}")
        # Else a worker beyond its memory would swap, slowly, in place of being killed. Kernels without swap accounting
        # do not have the file.
        if (worker / "memory.swap.max").exists():
            (worker / "memory.swap.max").write_text("0")


def _enable_controllers(group: Path) -> None:
    (group / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in CONTROLLERS))


def attempt_cgroup(directory: str, uid: str, attempt: int) -> Path | None:
    """Return the cgroup of an attempt, None where `directory` is ""."""
    return Path(directory) / f"mpijob-{uid}-{attempt}" if directory else None


def worker_cgroup(group: Path, index: int) -> Path:
    return group / f"worker-{index}"


def enter(group: Path) -> None:
    """Move this process, and with it all that it starts from now on, into a cgroup."""
    # 0 is the writing process, whose pid differs between PID namespaces.
    (group / "cgroup.procs").write_text("0")


def oom_kills(group: Path) -> int:
    """Return how many processes of a cgroup the kernel killed at its memory limit, 0 if that is unknown."""
    try:
        lines = (group / "memory.events").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def kill_and_remove(group: Path, *, seconds: float = 2.0) -> bool:
    """Kill everything in an attempt's cgroup and remove it; return whether that succeeded in time."""
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
        # A cgroup's files belong to the kernel: it goes by `rmdir`, and cannot be emptied before.
        for directory in (*group.glob("worker-*"), group):
            directory.rmdir()
    except OSError:
        return False
    return True
