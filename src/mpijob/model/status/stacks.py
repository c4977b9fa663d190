"""Where ranks stand at one moment: the stack of each, and how much of it could be seen.

Engines collect them (`backends`), `stack_dump` reads what py-spy, gdb and /proc say, `observation/health/stacks`
groups them into sentences.
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
    """One call: its function, the file (or library) it is in, the line where that is known."""

    function: str
    file: str = ""
    line: int = 0
    native: bool = False


class RankStack(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One rank: its main thread's calls, the innermost first, and what the kernel says it does.

    `state` is the letter of /proc (R runs, S sleeps, D waits for a device, T is stopped, Z has ended).
    `wchan` is where it waits in the kernel, `syscall` the system call it is in. `said` quotes the tool that
    could not do more.
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
    """Ranks that stand at the same place; `frames` are those of the first of them.

    `waits` says that the place is one where MPI waits for other ranks.
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
