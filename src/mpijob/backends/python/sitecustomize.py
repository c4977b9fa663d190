"""First on every rank's Python path: a rank that fails ends the whole job, as `python -m mpi4py` does.

Without it, the failed rank waits in MPI_Finalize for the others, which wait for its messages: all three MPI
families hang. A rank fails by an uncaught exception, or by an uncaught `SystemExit` with a status other than 0.
The user's own `sitecustomize`, if any, is loaded afterwards. Only the standard library is imported: the file is
also copied into containers without this package.
"""

from __future__ import annotations

import _thread
import atexit
import builtins
import os
import sys
from importlib import import_module

# Type checkers treat this name as `typing.TYPE_CHECKING`; importing `typing` would delay every Python program.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, NoReturn

# A forked child is no rank, and its exit status is its own business.
_PID = os.getpid()
_builtin_thread_hook = _thread._excepthook
_failures: list[tuple[int, str]] = []


# Handlers run in the reverse order of their registration: this one runs last, after those of the program.
@atexit.register
def _abort_if_failed() -> None:
    """Make mpi4py call MPI_Abort instead of MPI_Finalize if this rank has failed and MPI is in use."""
    mpi = sys.modules.get("mpi4py.MPI")
    if not _failures or os.getpid() != _PID or mpi is None or not mpi.Is_initialized() or mpi.Is_finalized():
        return
    status, message = _failures[-1]
    mpi._set_abort_status(status)
    os.write(2, message.encode())
    _report_exit(status)


def _report_exit(status: int) -> None:
    # Before the abort: MPI kills this rank, and its exit status is lost. On one machine the supervisor reads a
    # pipe; from a container only the rank's output reaches the engine.
    try:
        rank, pipes = int(os.environ["MPIJOB_RANK"]), os.environ.get("MPIJOB_PIPES")
        if pipes is None:
            os.write(1, f"mpijob-exit rank={rank} code={status} left=1\n".encode())
            _wait_until_read()
            return
        report = os.open(pipes + "/report", os.O_WRONLY | os.O_NONBLOCK)
        os.write(report, f"left {rank} {status}\n".encode())
        os.close(report)
    except (KeyError, ValueError, OSError, ImportError):
        # The rank was not started by mpijob, or nothing reads the pipe.
        return


def _wait_until_read(seconds: float = 1.0) -> None:
    # The abort reaches the launcher on another way than the output, and output that it overtakes is lost.
    from fcntl import ioctl
    from termios import FIONREAD
    from time import monotonic, sleep

    deadline = monotonic() + seconds
    while any(ioctl(1, FIONREAD, bytes(4))) and monotonic() < deadline:
        sleep(0.005)


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    sys.__excepthook__(kind, error, trace)
    _failures.append((1, ""))


class SystemExit(builtins.SystemExit):
    """The built-in exception, which also records that nothing but the interpreter caught it."""

    __module__ = "builtins"

    # `sys.excepthook` is not called for SystemExit, and `atexit` handlers do not get it. But the interpreter
    # releases the exception when no frame of the program is left.
    def __del__(self) -> None:
        status = self.code & 255 if isinstance(self.code, int) else int(self.code is not None)
        if status and sys._getframe().f_back is None:
            text = f"mpijob: this rank exits with {status}, so all ranks are ended: they would wait for it\n"
            _failures.append((status, text))


def _exit(status: Any = None, /) -> NoReturn:
    """Exit the interpreter by raising SystemExit(status)."""
    raise SystemExit(status)


def _thread_hook(args: Any) -> None:
    # The built-in hook ignores the built-in SystemExit only.
    if not issubclass(args.exc_type, SystemExit):
        _builtin_thread_hook(args)


def _load_user_sitecustomize() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if path != here]
    ours = sys.modules.pop("sitecustomize")
    try:
        import_module("sitecustomize")
    except ImportError:
        # The user has none.
        sys.modules["sitecustomize"] = ours


sys.excepthook = _uncaught
sys.exit = _exit
vars(builtins)["SystemExit"] = SystemExit
_thread._excepthook = _thread_hook
# `threading` copies the hook when it is imported.
if "threading" in sys.modules:
    vars(sys.modules["threading"])["excepthook"] = _thread_hook
_load_user_sitecustomize()
