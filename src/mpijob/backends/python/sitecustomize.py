"""First on every rank's Python path: a rank that ends badly ends the whole world, as `python -m mpi4py` does.

Without it the rank that failed waits in MPI_Finalize for the others, and they wait for its messages:
all three MPI families hang. Badly is an uncaught exception, or a `SystemExit` that nobody caught and
that is not 0. A `sitecustomize` of the user's own is loaded after this one.
"""

from __future__ import annotations

import _thread
import atexit
import builtins
import os
import sys
from importlib import import_module

TYPE_CHECKING = False  # as in `typing`, which takes long to load
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, NoReturn

_PID = os.getpid()  # a forked child may leave as it likes: it is no rank
_quiet_in_threads = _thread._excepthook
_bad_end: list[tuple[int, str]] = []


@atexit.register  # the first one registered is the last one called: the program has had its say
def _end_the_world() -> None:
    """Let mpi4py call MPI_Abort in the place of MPI_Finalize, where there is a world to end."""
    mpi = sys.modules.get("mpi4py.MPI")
    if not _bad_end or os.getpid() != _PID or mpi is None or not mpi.Is_initialized() or mpi.Is_finalized():
        return
    status, said = _bad_end[-1]
    mpi._set_abort_status(status)
    os.write(2, said.encode())
    _tell(status)


def _tell(status: int) -> None:
    """Tell how this rank ends: once MPI has killed it, nobody could see that any more.

    On one machine the supervisor listens; in a pod what the rank says is all that leaves it.
    """
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
        return  # not below a shim of ours, or nobody listens


def _wait_until_read(seconds: float = 1.0) -> None:
    """Give what was said a lead: an abort takes another way to the launcher, and what it overtakes is lost."""
    from fcntl import ioctl
    from termios import FIONREAD
    from time import monotonic, sleep

    deadline = monotonic() + seconds
    while any(ioctl(1, FIONREAD, bytes(4))) and monotonic() < deadline:
        sleep(0.005)


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    sys.__excepthook__(kind, error, trace)
    _bad_end.append((1, ""))


class SystemExit(builtins.SystemExit):
    """The built-in one, which also notices that the interpreter took it, and nobody before.

    The interpreter keeps no trace of it for `atexit`. But it lets go of it when no frame is left.
    """

    __module__ = "builtins"

    def __del__(self) -> None:
        status = self.code & 255 if isinstance(self.code, int) else int(self.code is not None)
        if status and sys._getframe().f_back is None:
            said = f"mpijob: this rank exits with {status}, so all ranks are ended: they would wait for it\n"
            _bad_end.append((status, said))


def _exit(status: Any = None, /) -> NoReturn:
    """Exit the interpreter by raising SystemExit(status)."""
    raise SystemExit(status)


def _in_thread(args: Any) -> None:
    """As it is for the built-in one: a thread that exits says nothing."""
    if not issubclass(args.exc_type, SystemExit):
        _quiet_in_threads(args)


def _load_the_users_own() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if path != here]
    ours = sys.modules.pop("sitecustomize")
    try:
        import_module("sitecustomize")  # for its effects
    except ImportError:
        sys.modules["sitecustomize"] = ours


sys.excepthook = _uncaught
sys.exit = _exit
vars(builtins)["SystemExit"] = SystemExit
_thread._excepthook = _in_thread
if "threading" in sys.modules:
    vars(sys.modules["threading"])["excepthook"] = _in_thread
_load_the_users_own()
