"""Guests in a worker: a command with its own terminal, run beside the ranks for `mpijob exec`.

The caller connects to the worker's socket and hands over three descriptors (its own, or a
pseudo-terminal's) and the command; the worker starts it among its own processes, with the worker's
environment, and says how it ended. The socket lies in a directory that only its owner may enter.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import socket
import termios
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from mpijob import codec
from mpijob.backends.local.worker import process_tree, syscalls
from mpijob.errors import BackendError

_FDS = 3


class ExecRequest(msgspec.Struct, frozen=True):
    """What a guest wants to run."""

    argv: tuple[str, ...]
    environ: dict[str, str] = {}
    terminal: bool = False


def listen(path: Path) -> socket.socket:
    """Return the worker's open door."""
    path.unlink(missing_ok=True)
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    with _short_path(path.parent) as place:
        door.bind(f"{place}/{path.name}")
    door.listen(8)
    door.setblocking(False)
    return door


@contextlib.contextmanager
def _short_path(directory: Path) -> Iterator[str]:
    """Yield a short path to the directory: a socket's path may have 108 bytes."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)


class ExecSession:
    """One visit, on the worker's side."""

    def __init__(self, line: socket.socket, call: ExecRequest, fds: tuple[int, int, int]) -> None:
        self._line = line
        self._call = call
        self._fds = fds

    @classmethod
    def accept(cls, door: socket.socket) -> ExecSession | None:
        """Return the visitor at the door, or None when it is not in order."""
        line, _ = door.accept()
        line.settimeout(2)
        try:
            data, ancillary, _, _ = line.recvmsg(1 << 20, socket.CMSG_SPACE(_FDS * 4))
            call = codec.decode(data, ExecRequest)
        except (OSError, msgspec.DecodeError):
            line.close()
            return None
        fds = array.array("i")
        for level, kind, payload in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds.frombytes(payload)
        if len(fds) != _FDS:
            line.close()
            return None
        return cls(line, call, (fds[0], fds[1], fds[2]))

    @property
    def environ(self) -> Mapping[str, str]:
        """The variables that the guest brings along."""
        return self._call.environ

    def start(self, environ: Mapping[str, str], directory: str) -> int:
        """Start the guest's command and return its pid."""
        prepare = _set_controlling_terminal if self._call.terminal else _keep_ptrace
        pid = process_tree.spawn(self._call.argv, environ, directory, self._fds, prepare)
        for fd in set(self._fds):
            os.close(fd)
        return pid

    def send_exit_status(self, code: int) -> None:
        """Tell the caller how the command ended."""
        with contextlib.suppress(OSError):
            self._line.sendall(b"%d" % (code if code >= 0 else 128 - code))
        self._line.close()


def _set_controlling_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    _keep_ptrace()


def _keep_ptrace() -> None:
    """Let a guest attach a debugger to the ranks beside it: it is the same user's, in the same namespace."""
    if os.geteuid() != 0:
        syscalls.keep_ptrace()


def connect(door: Path, call: ExecRequest, fds: tuple[int, int, int]) -> socket.socket:
    """On the caller's side: hand the call over; the socket that comes back will say the exit status."""
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        with _short_path(door.parent) as place:
            line.connect(f"{place}/{door.name}")
    except OSError as error:
        line.close()
        raise BackendError(
            f"worker {door.name.removeprefix('door-')} does not answer: {error.strerror}"
        ) from error
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
    line.sendmsg([msgspec.json.encode(call)], rights)
    return line
