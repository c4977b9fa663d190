"""Call stacks of ranks at one moment.

Engines collect them, `stack_dump` parses the output of py-spy, gdb and /proc, and `observation/health/stacks` groups
them.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Means(StrEnum):
    """What a stack was taken with; `proc` sees only what the kernel reports of a process, `none` nothing."""

    PYSPY = "py-spy"
    GDB = "gdb"
    PROC = "proc"
    NONE = "none"


class Lack(StrEnum):
    """Why a rank's stack could not be seen, or not wholly."""

    NO_PYSPY = "no-py-spy"
    NO_GDB = "no-gdb"
    DENIED = "denied"
    TOO_SLOW = "too-slow"
    UNREADABLE = "unreadable"
    GONE = "gone"
    UNREACHED = "unreached"


class Frame(msgspec.Struct, frozen=True, omit_defaults=True):
    """One stack frame: function, file (or library), and line if known."""

    function: str
    file: str = ""
    line: int = 0
    native: bool = False


class RankStack(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One rank: call stack of its main thread, innermost first, and its state in the kernel.

    `state` is the letter of /proc (R running, S sleeping, D waiting for a device, T stopped, Z zombie). `wchan` is
    where it waits in the kernel, `syscall` its current system call. `said` quotes the error of a tool that failed.
    """

    rank: int
    worker: int | None = None
    pid: int = 0
    program: str = ""
    means: Means = Means.NONE
    state: str = ""
    threads: int = 0
    wchan: str = ""
    syscall: str = ""
    frames: tuple[Frame, ...] = ()
    lack: Lack | None = None
    said: str = ""


class StackGroup(msgspec.Struct, frozen=True, omit_defaults=True):
    """Ranks with the same call stack; `frames` are those of the first rank.

    `waits` is true if MPI waits there for other ranks.
    """

    where: str
    ranks: tuple[int, ...]
    waits: bool = False
    frames: tuple[Frame, ...] = ()


class StackReport(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Call stacks of all ranks: a summary, the groups (largest first), the conclusion, and what is missing."""

    summary: str
    groups: tuple[StackGroup, ...] = ()
    remarks: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    stacks: tuple[RankStack, ...] = ()
