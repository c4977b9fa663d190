"""Processes: starting them, finding their descendants, measuring and ending them.

Everything is by pid and /proc; nothing here knows what a job is.
"""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, NoReturn

from mpijob.backends.local.worker import syscalls

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_RESET = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGUSR1, signal.SIGPIPE, signal.SIGHUP)


class Process(NamedTuple):
    """One line of the process table."""

    pid: int
    parent: int
    state: str
    cpu_seconds: float
    memory_bytes: int
    name: str


def spawn(
    argv: Sequence[str],
    environ: Mapping[str, str],
    directory: str,
    fds: tuple[int, int, int],
    prepare: Callable[[], None] | None = None,
) -> int:
    """Start a program in a session of its own that dies with us; return its pid.

    A program that cannot be started ends with 127 (not there) or 126 (not executable), like a shell's.
    """
    pid = os.fork()
    if pid == 0:
        _exec(argv, environ, directory, fds, prepare)
    return pid


def spawn_without_fork(argv: Sequence[str], environ: Mapping[str, str], fds: tuple[int, int, int]) -> int:
    """Start a program in a session of its own and in our directory, without copying this process first.

    For jobs with namespaces: the program need not die with us by itself, for the kernel sees to it.
    """
    path = argv[0] if "/" in argv[0] else shutil.which(argv[0], path=environ.get("PATH"))
    if path is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), argv[0])
    return os.posix_spawn(
        path,
        list(argv),
        dict(environ),
        file_actions=[(os.POSIX_SPAWN_DUP2, fd, target) for target, fd in enumerate(fds)],
        setsid=True,
        setsigmask=[],
        setsigdef=_RESET,
    )


def disable_core_dumps() -> None:
    """Let crashes of this process and of those it starts leave no core files."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _exec(
    argv: Sequence[str],
    environ: Mapping[str, str],
    directory: str,
    fds: tuple[int, int, int],
    prepare: Callable[[], None] | None,
) -> NoReturn:
    code = 126
    try:
        os.setsid()
        syscalls.set_parent_death_signal()
        reset_signals()
        for target, fd in enumerate(fds):
            os.dup2(fd, target)
        os.closerange(3, 4096)
        disable_core_dumps()
        os.chdir(directory)
        if prepare is not None:
            prepare()
        os.execvpe(argv[0], list(argv), environ)
    except FileNotFoundError as error:
        code = 127
        os.write(2, f"mpijob: cannot start {argv[0]}: {error.strerror}\n".encode())
    except OSError as error:
        os.write(2, f"mpijob: cannot start {argv[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(code)


def reset_signals() -> None:
    """Undo what a forked Python process inherits: its handlers and its wake-up descriptor."""
    signal.set_wakeup_fd(-1)
    for number in _RESET:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def fork_child(work: Callable[[], None]) -> int:
    """Fork; run the work in the child, which never returns from it; return the child's pid."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        work()
        code = 0
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        for number in _RESET:  # nothing is to be done any more, whoever rings
            # Were it told to ignore its children, one that ends now would be gone, and our heir could not wait for it.
            signal.signal(number, signal.SIG_DFL if number == signal.SIGCHLD else signal.SIG_IGN)
        sys.stderr.flush()
        os._exit(code)


# -- the process table --------------------------------------------------------------------------------
def table() -> dict[int, Process]:
    """Return every process that /proc shows."""
    found: dict[int, Process] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (process := read_process(int(entry))):
            found[process.pid] = process
    return found


def read_process(pid: int) -> Process | None:
    """Return one process, or None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            head, _, rest = file.read().rpartition(b")")
    except OSError:
        return None
    fields = rest.split()
    cpu = (int(fields[11]) + int(fields[12])) / _TICKS
    name = head.partition(b"(")[2].decode(errors="replace")
    return Process(pid, int(fields[1]), fields[0].decode(), cpu, int(fields[21]) * _PAGE, name)


def is_stopped(pid: int) -> bool:
    """Whether somebody has stopped a process: it is there, and gets no core until it is told to go on."""
    seen = read_process(pid)
    return seen is not None and seen.state in "Tt"


def children(pid: int) -> list[int]:
    """Return the children of a process's first thread."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def descendants(root: int, processes: Mapping[int, Process], without: Collection[int] = ()) -> list[Process]:
    """Return all processes below one, without it, and without some and what is below those."""
    return descendants_in(root, by_parent(processes, without))


def by_parent(processes: Mapping[int, Process], without: Collection[int] = ()) -> dict[int, list[Process]]:
    """Return processes by the pid of their parent."""
    children: dict[int, list[Process]] = {}
    for process in processes.values():
        if process.pid not in without:
            children.setdefault(process.parent, []).append(process)
    return children


def descendants_in(root: int, children: Mapping[int, list[Process]]) -> list[Process]:
    """Return all processes below one, without it."""
    found: list[Process] = []
    todo = [root]
    while todo:
        for child in children.get(todo.pop(), ()):
            found.append(child)
            todo.append(child.pid)
    return found


def proportional_bytes(pids: Iterable[int]) -> int:
    """Return the memory of some processes with shared pages counted once among their users (PSS)."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
                total += next(int(line.split()[1]) * 1024 for line in file if line.startswith(b"Pss:"))
        except (OSError, StopIteration):
            continue
    return total


# -- ending -------------------------------------------------------------------------------------------
def send_signal(pid: int, number: int) -> None:
    """Send a signal; a process that is gone already is no error."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def kill_descendants(root: int, *, seconds: float = 5.0) -> bool:
    """Kill everything below a process until nothing is left; return whether that was reached."""
    deadline = time.monotonic() + seconds
    while True:
        left = [process for process in descendants(root, table()) if process.state not in "ZX"]
        if not left:
            return True
        for process in left:
            send_signal(process.pid, signal.SIGKILL)
        reap()
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)


def reap() -> dict[int, int]:
    """Collect every child that has ended: pid → exit code, negative for a signal."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = os.waitstatus_to_exitcode(status)
