"""Processes by pid and /proc: start them, find and measure their descendants, end them.

Nothing here knows what a job is.
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
    """One process, as /proc/PID/stat shows it."""

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
    """Start a program in a session of its own that dies with this process; return its pid.

    A program that cannot be started ends with 127 (not found) or 126 (not executable), like a shell's.
    `prepare` runs in the child before the program.
    """
    pid = os.fork()
    if pid == 0:
        _exec(argv, environ, directory, fds, prepare)
    return pid


def spawn_without_fork(argv: Sequence[str], environ: Mapping[str, str], fds: tuple[int, int, int]) -> int:
    """Start a program in a session of its own and in this process's directory; return its pid.

    It does not die with this process, as `posix_spawn` cannot set that. In a PID namespace the kernel ends it.
    """
    # `posix_spawn` does not copy this process's memory map, as a fork does (docs/decisions/0014).
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
        # Not all are close-on-exec, for example those that came through a socket.
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
    # Else a signal to the child would be written into the parent's pipe, and wake the parent.
    signal.set_wakeup_fd(-1)
    for number in _RESET:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def fork_child(work: Callable[[], None]) -> int:
    """Fork; run `work` in the child, which then exits; return the child's pid."""
    # Both processes would write what is buffered.
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
        # Handlers of the parent must not run any more. SIGCHLD is not ignored: the kernel would then reap children by
        # itself, and the process that adopts them could not wait for them.
        for number in _RESET:
            signal.signal(number, signal.SIG_DFL if number == signal.SIGCHLD else signal.SIG_IGN)
        sys.stderr.flush()
        # Not `sys.exit`: `finally` blocks and exit hooks are the parent's.
        os._exit(code)


# -- the process table --------------------------------------------------------------------------------
def table() -> dict[int, Process]:
    found: dict[int, Process] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (process := read_process(int(entry))):
            found[process.pid] = process
    return found


def read_process(pid: int) -> Process | None:
    """Return one process, None if it is gone."""
    try:
        # The name, in parentheses, may contain spaces and parentheses: the last one ends it.
        with open(f"/proc/{pid}/stat", "rb") as file:
            head, _, rest = file.read().rpartition(b")")
    except OSError:
        return None
    fields = rest.split()
    cpu = (int(fields[11]) + int(fields[12])) / _TICKS
    name = head.partition(b"(")[2].decode(errors="replace")
    return Process(pid, int(fields[1]), fields[0].decode(), cpu, int(fields[21]) * _PAGE, name)


def is_stopped(pid: int) -> bool:
    """Return whether a process is stopped by a signal or a debugger."""
    process = read_process(pid)
    return process is not None and process.state in "Tt"


def children(pid: int) -> list[int]:
    """Return the children of a process's first thread; much faster than `table` for one process."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def descendants(root: int, processes: Mapping[int, Process], without: Collection[int] = ()) -> list[Process]:
    """Return all processes below `root`, except those in `without` and what is below them."""
    return descendants_in(root, by_parent(processes, without))


def by_parent(processes: Mapping[int, Process], without: Collection[int] = ()) -> dict[int, list[Process]]:
    children: dict[int, list[Process]] = {}
    for process in processes.values():
        if process.pid not in without:
            children.setdefault(process.parent, []).append(process)
    return children


def descendants_in(root: int, children: Mapping[int, list[Process]]) -> list[Process]:
    found: list[Process] = []
    todo = [root]
    while todo:
        for child in children.get(todo.pop(), ()):
            found.append(child)
            todo.append(child.pid)
    return found


def proportional_bytes(pids: Iterable[int]) -> int:
    """Return the memory of processes, each shared page divided among its users (PSS); slow."""
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
    """Send a signal; a process that is gone, or another user's, is no error."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def kill_descendants(root: int, *, seconds: float = 5.0) -> bool:
    """Kill everything below a process; return whether nothing was left in time."""
    # Again and again: processes fork between the reading of the table and the signal.
    deadline = time.monotonic() + seconds
    while True:
        # Zombies are left to their parents.
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
    """Wait for every child that has ended; return exit codes by pid, negative for a signal."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = os.waitstatus_to_exitcode(status)
