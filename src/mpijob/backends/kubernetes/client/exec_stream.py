"""Run a command in a pod over a WebSocket (`v5.channel.k8s.io`, or v4 of older servers).

Each message begins with the number of its channel: 0 stdin, 1 stdout, 2 stderr, 3 the command's status, 4 the
terminal's size, 255 the end of a channel (v5).
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO, NamedTuple, cast
from urllib.parse import urlsplit

import msgspec

from mpijob import codec
from mpijob.backends.kubernetes.auth.access import Access, Credential, identifying
from mpijob.backends.kubernetes.auth.credentials import Credentials
from mpijob.backends.kubernetes.client.api import Api, target
from mpijob.backends.kubernetes.client.api_errors import CUT, ApiError, ErrorStatus, refusal
from mpijob.backends.kubernetes.client.connection import Connector
from mpijob.backends.kubernetes.client.http import invalid_request
from mpijob.errors import Unsupported
from mpijob.outbound.connection import InvalidRequest, check_headers

_PROTOCOLS = ["v5.channel.k8s.io", "v4.channel.k8s.io"]
# Channel numbers of remotecommand in kubernetes/apimachinery.
_STDIN, _STDOUT, _STDERR, _ENDED, _SIZE, _CLOSE = 0, 1, 2, 3, 4, 255
# A socket that poll reports as writable takes this much without blocking.
_CHUNK_BYTES = 8192
_POLL_SECONDS = 0.3
# Load balancers close connections that are idle for about a minute.
_PING_SECONDS = 20.0
_MAX_STDERR, _MAX_UNREAD = 64 << 10, 1 << 20
# The kubelet may send the status before the last output.
_DRAIN_SECONDS = 5.0
# The exit codes of POSIX shells.
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
Query = list[tuple[str, str]]


class Streams(NamedTuple):
    """The local ends of the command's streams."""

    stdin: BinaryIO | None
    stdout: BinaryIO
    stderr: BinaryIO


def execute(
    access: Access | Api,
    path: str,
    argv: tuple[str, ...],
    *,
    container: str = "",
    stdin: BinaryIO | None = None,
    stdout: BinaryIO | None = None,
    stderr: BinaryIO | None = None,
    tty: bool | None = None,
) -> int:
    """Run a command in the pod whose `exec` path is `path`, and return its exit code.

    By default it has this process's streams, and a terminal if they are one.
    """
    streams = Streams(
        stdin or _standard_input(),
        stdout or _binary(sys.stdout),
        stderr or _binary(sys.stderr),
    )
    if tty is None:
        tty = _is_terminal(streams.stdin) and _is_terminal(streams.stdout)
    return _run(access, path, argv, container, streams, tty)


def capture(
    access: Access | Api, path: str, argv: tuple[str, ...], *, container: str = "", given: bytes | None = None
) -> tuple[int, bytes, bytes]:
    """Run a command without a terminal; return its exit code, stdout and stderr. `given` is its stdin."""
    stdin = io.BytesIO(given) if given is not None else None
    stdout, stderr = io.BytesIO(), io.BytesIO()
    status = _run(access, path, argv, container, Streams(stdin, stdout, stderr), tty=False)
    return status, stdout.getvalue(), stderr.getvalue()


class Output:
    """The stdout of a command, to be read while it runs; end with `finish` or `abandon`."""

    def __init__(
        self, access: Access | Api, path: str, argv: tuple[str, ...], *, container: str = ""
    ) -> None:
        read, write = os.pipe()
        self.stdout: BinaryIO = os.fdopen(read, "rb")
        self._stderr = _Bounded()
        executor = ThreadPoolExecutor(1)
        self._status_future = executor.submit(self._copy_output, access, path, argv, container, write)
        executor.shutdown(wait=False)

    def _copy_output(
        self, access: Access | Api, path: str, argv: tuple[str, ...], container: str, write: int
    ) -> int:
        stdout = os.fdopen(write, "wb")
        try:
            return _run(access, path, argv, container, Streams(None, stdout, self._stderr), tty=False)
        finally:
            # A broken pipe after `abandon`.
            with contextlib.suppress(OSError):
                stdout.close()

    def finish(self) -> tuple[int, str]:
        """Return exit code and stderr when the command has ended; raise ApiError if it could not run."""
        # The command blocks on a full pipe, so unread output must be consumed, to a limit.
        _drain(self.stdout)
        self.stdout.close()
        status = self._status_future.result()
        return status, self._stderr.getvalue().decode(errors="replace")

    def abandon(self) -> None:
        """Stop reading; the command ends at its next write, or with its pod."""
        self.stdout.close()


class _Bounded(io.BytesIO):
    """Keeps the first bytes that are written and drops the rest."""

    def write(self, data: Any) -> int:
        super().write(bytes(data)[: max(0, _MAX_STDERR - self.tell())])
        return len(data)


def _drain(stream: BinaryIO) -> None:
    for _ in range(_MAX_UNREAD // _CHUNK_BYTES):
        if not stream.read(_CHUNK_BYTES):
            return


def _run(
    access: Access | Api, path: str, argv: tuple[str, ...], container: str, streams: Streams, tty: bool
) -> int:
    query = [("command", word) for word in argv]
    options = {
        "container": container,
        "stdin": streams.stdin is not None,
        "stdout": True,
        "stderr": not tty,
        "tty": tty,
    }
    query += [
        (name, str(value).lower() if value is True else str(value))
        for name, value in options.items()
        if value
    ]
    connection = _connect(access, path, query)
    with _raw(streams.stdin) if tty else contextlib.nullcontext():
        return _Session(connection, streams, tty, path).run(argv[0])


def _connect(place: Access | Api, path: str, query: Query) -> Any:
    access, credentials = (
        (place.access, place.credentials) if isinstance(place, Api) else (place, Credentials(place))
    )
    proof = credentials.current()
    try:
        return _handshake(access, proof, path, query)
    except ApiError as error:
        if error.status != 401 or not credentials.renew(proof):
            raise
        return _handshake(access, credentials.current(), path, query)


def _handshake(access: Access, proof: Credential, path: str, query: Query) -> Any:
    """Return the open WebSocket; raise ApiError."""
    library = _library()
    headers = [f"{name}: {value}" for name, value in identifying(access, proof)]
    try:
        check_headers(headers)
    except InvalidRequest as error:
        raise invalid_request(access, error) from error
    # Over a connection of ours rather than the library's, so that TLS, proxies and their errors exist once.
    sock = Connector(access).dial(proof).sock
    parts = urlsplit(access.server)
    try:
        return library.create_connection(
            f"ws://{parts.netloc}{target(access, path, query)}",
            socket=sock,
            host=parts.netloc,
            header=headers,
            subprotocols=_PROTOCOLS,
            suppress_origin=True,
            redirect_limit=0,
            timeout=30,
        )
    except library.WebSocketBadStatusException as error:
        sock.close()
        answer = ErrorStatus(error.status_code, error.resp_headers or {}, error.resp_body or b"")
        # Not chained: the exception's text contains the whole response.
        raise refusal(access, "GET", path, answer) from None
    except (library.WebSocketException, OSError) as error:
        sock.close()
        raise ApiError(
            f"{access.server} cannot open an exec connection to the pod: {type(error).__name__}",
            reason=CUT,
            server=access.server,
            path=path,
        ) from None


def _library() -> Any:
    try:
        import websocket
    except ImportError as error:
        raise Unsupported(
            "running a command inside a pod needs the package websocket-client, which is not installed",
            hint="pip install 'mpijob[kubernetes]'",
        ) from error
    return websocket


class _Session:
    """The exchange of messages for one command.

    One thread reads and writes: a TLS socket must not be used by two threads at once.
    """

    def __init__(self, connection: Any, streams: Streams, tty: bool, path: str) -> None:
        self._connection = connection
        self._streams = streams
        self._tty = tty
        self._path = path
        # v4 cannot close stdin alone: a command that reads to the end of its input never ends there.
        self._closes_channels = connection.getsubprotocol() == _PROTOCOLS[0]
        self._input: BinaryIO | None = streams.stdin
        self._size: tuple[int, int] | None = None
        self._end: dict[str, Any] | None = None
        self._last_sent = time.monotonic()
        connection.settimeout(1.0)

    def run(self, program: str) -> int:
        """Copy bytes in both directions until the command has ended; return its exit code."""
        library, drain_until = _library(), float("inf")
        try:
            while time.monotonic() < drain_until:
                self._resize()
                if not self._step(library):
                    break
                if self._end is not None and drain_until == float("inf"):
                    drain_until = time.monotonic() + _DRAIN_SECONDS
        except (library.WebSocketException, OSError):
            if self._end is None:
                raise self._cut() from None
        finally:
            self._connection.shutdown()
        return self._status(program)

    def _step(self, library: Any) -> bool:
        """Wait for data of either side and forward it; return False when the connection is closed."""
        arrived, has_input = self._wait()
        if arrived:
            try:
                opcode, data = self._connection.recv_data()
            except library.WebSocketTimeoutException:
                # A TLS record without data (a session ticket, a new key), or a message that arrives in pieces.
                return True
            if opcode == library.ABNF.OPCODE_CLOSE:
                return False
            self._receive(data)
        elif has_input:
            self._send_input()
        return True

    def _wait(self) -> tuple[bool, bool]:
        sock = self._connection.sock
        # TLS may have decrypted data already, of which poll knows nothing.
        if getattr(sock, "pending", int)():
            return True, False
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        fd = _fileno(self._input)
        if fd is not None:
            poll.register(fd, select.POLLIN)
        # An input without a file descriptor (bytes of a caller) can always be read.
        seconds = 0.0 if self._input is not None and fd is None else _POLL_SECONDS
        ready = {fd for fd, _ in poll.poll(seconds * 1000)}
        has_input = self._input is not None and (fd is None or fd in ready) and self._writable()
        if not ready and not has_input and time.monotonic() - self._last_sent > _PING_SECONDS:
            self._last_sent = time.monotonic()
            self._connection.ping()
        return sock.fileno() in ready, has_input

    def _writable(self) -> bool:
        poll = select.poll()
        poll.register(self._connection.sock, select.POLLOUT)
        return bool(poll.poll(_POLL_SECONDS * 1000))

    def _send_input(self) -> None:
        assert self._input is not None
        fd = _fileno(self._input)
        data = self._input.read(_CHUNK_BYTES) if fd is None else os.read(fd, _CHUNK_BYTES)
        if data:
            self._send(_STDIN, data)
            return
        self._input = None
        if self._closes_channels:
            self._send(_CLOSE, bytes([_STDIN]))

    def _send(self, channel: int, data: bytes) -> None:
        self._last_sent = time.monotonic()
        self._connection.send_binary(bytes([channel]) + data)

    def _receive(self, message: bytes) -> None:
        if not message:
            return
        channel, data = message[0], message[1:]
        if channel == _ENDED and data:
            self._end = codec.decode(data, dict[str, Any])
        target = {_STDOUT: self._streams.stdout, _STDERR: self._streams.stderr}.get(channel)
        if target is not None and data:
            target.write(data)
            target.flush()

    def _resize(self) -> None:
        """Send the terminal's size if it has changed."""
        fd = _fileno(self._streams.stdout) if self._tty else None
        if fd is None:
            return
        with contextlib.suppress(OSError):
            size = os.get_terminal_size(fd)
            if size != self._size:
                self._size = size
                self._send(_SIZE, msgspec.json.encode({"Width": size.columns, "Height": size.lines}))

    def _status(self, program: str) -> int:
        end = self._end
        if end is None:
            raise self._cut()
        if end.get("status") == "Success":
            return 0
        for cause in (end.get("details") or {}).get("causes") or ():
            if cause.get("reason") == "ExitCode" and str(cause.get("message")).isdecimal():
                return int(cause["message"])
        return self._unstarted(program, str(end.get("message", "")), int(end.get("code") or 500))

    def _unstarted(self, program: str, message: str, code: int) -> int:
        absent = "executable file not found" in message or "no such file or directory" in message
        if absent or "permission denied" in message:
            why = "is not in the container" if absent else "may not be executed"
            self._streams.stderr.write(f"mpijob: '{program}' {why}\n".encode())
            self._streams.stderr.flush()
            return _NOT_FOUND if absent else _NOT_EXECUTABLE
        raise ApiError(message, status=code, path=self._path)

    def _cut(self) -> ApiError:
        return ApiError(
            "the connection to the pod was lost before the command ended",
            reason=CUT,
            path=self._path,
            hint="the pod may have ended, or the connection was lost; the command may still be running",
        )


class _Text(io.RawIOBase):
    """Takes bytes for a stream of text: a notebook's output."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._stream.write(bytes(data).decode(errors="replace"))
        return len(data)

    def flush(self) -> None:
        self._stream.flush()


def _standard_input() -> BinaryIO | None:
    """Return this process's input, if there is one that can be read: a notebook or a test has none."""
    stream = getattr(sys.stdin, "buffer", None)
    return stream if _fileno(stream) is not None else None


def _binary(stream: Any) -> BinaryIO:
    return getattr(stream, "buffer", None) or cast(BinaryIO, _Text(stream))


def _fileno(stream: BinaryIO | None) -> int | None:
    try:
        return stream.fileno() if stream is not None else None
    except (OSError, ValueError):
        return None


def _is_terminal(stream: BinaryIO | None) -> bool:
    fd = _fileno(stream)
    return fd is not None and os.isatty(fd)


@contextlib.contextmanager
def _raw(stream: BinaryIO | None) -> Iterator[None]:
    """Hand each key to the pod as it is pressed; the terminal is as before afterwards."""
    fd = _fileno(stream)
    if fd is None or not os.isatty(fd):
        yield
        return
    import termios
    import tty

    before = termios.tcgetattr(fd)
    try:
        # TCSANOW keeps what was typed ahead.
        tty.setraw(fd, termios.TCSANOW)
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSANOW, before)
