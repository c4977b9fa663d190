"""Commands inside a worker, for `mpijob exec`: both sides of a worker's Unix socket.

The client sends the command and three descriptors (its own, or a pseudo-terminal's); the worker starts the command
with its own environment, and answers the exit status. Only the owner may enter the socket's directory.
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
    """A command, with variables in addition to the worker's; `terminal`: its descriptors are a terminal."""

    argv: tuple[str, ...]
    environ: dict[str, str] = {}
    terminal: bool = False


def listen(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    with _short_path(path.parent) as directory:
        listener.bind(f"{directory}/{path.name}")
    listener.listen(8)
    listener.setblocking(False)
    return listener


@contextlib.contextmanager
def _short_path(directory: Path) -> Iterator[str]:
    # The path of a Unix socket has 108 bytes at most (unix(7)); the engine's home may be deeper.
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)


class ExecSession:
    """One command, on the worker's side."""

    def __init__(self, connection: socket.socket, request: ExecRequest, fds: tuple[int, int, int]) -> None:
        self._connection = connection
        self._request = request
        self._fds = fds

    @classmethod
    def accept(cls, listener: socket.socket) -> ExecSession | None:
        """Return the next client's session, None if its request is invalid."""
        connection, _ = listener.accept()
        # The worker serves its ranks in the same thread.
        connection.settimeout(2)
        try:
            data, ancillary, _, _ = connection.recvmsg(1 << 20, socket.CMSG_SPACE(_FDS * 4))
            request = codec.decode(data, ExecRequest)
        except (OSError, msgspec.DecodeError):
            connection.close()
            return None
        fds = array.array("i")
        for level, kind, payload in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds.frombytes(payload)
        if len(fds) != _FDS:
            connection.close()
            return None
        return cls(connection, request, (fds[0], fds[1], fds[2]))

    @property
    def environ(self) -> Mapping[str, str]:
        return self._request.environ

    def start(self, environ: Mapping[str, str], directory: str) -> int:
        """Start the command and return its pid; the caller reaps it."""
        prepare = _set_controlling_terminal if self._request.terminal else _keep_ptrace
        pid = process_tree.spawn(self._request.argv, environ, directory, self._fds, prepare)
        # A set: of a terminal, the client may send one descriptor three times.
        for fd in set(self._fds):
            os.close(fd)
        return pid

    def send_exit_status(self, code: int) -> None:
        """Answer the client and close the connection; a signal's negative code becomes 128 + n, as in a shell."""
        # The client may be gone.
        with contextlib.suppress(OSError):
            self._connection.sendall(b"%d" % (code if code >= 0 else 128 - code))
        self._connection.close()


def _set_controlling_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    _keep_ptrace()


def _keep_ptrace() -> None:
    # So that py-spy and gdb can attach to ranks, which belong to the same user. Root can without this.
    if os.geteuid() != 0:
        syscalls.keep_ptrace()


def connect(path: Path, request: ExecRequest, fds: tuple[int, int, int]) -> socket.socket:
    """On the client's side: send a request; the socket returned, which the caller closes, yields the exit status."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        with _short_path(path.parent) as directory:
            connection.connect(f"{directory}/{path.name}")
    except OSError as error:
        connection.close()
        raise BackendError(
            f"worker {path.name.removeprefix('door-')} does not answer: {error.strerror}"
        ) from error
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
    connection.sendmsg([msgspec.json.encode(request)], rights)
    return connection
