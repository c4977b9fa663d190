"""Connections under a policy: resolve a name once, check all addresses, connect to a checked one.

So DNS rebinding has no effect. A forbidden host and an unknown host cause the same error, without an address:
it does not reveal which hosts exist inside. When an operation exceeds its time limit, its sockets are shut
down, whether they wait for a TLS handshake, headers, or a body without end.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from mpijob.errors import BackendError, NotAllowed
from mpijob.outbound.policy import UNRESTRICTED, Policy, split_host_port

# As returned by `socket.getaddrinfo`.
AddressInfo = tuple[int, int, int, str, Any]
Options = Sequence[tuple[int, int, int | bytes]]


def resolve(host: str, port: int) -> list[AddressInfo]:
    """Return the addresses of a host, IPv4 first; raise OSError if it cannot be resolved."""
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        # The name cannot be encoded.
        raise socket.gaierror(socket.EAI_NONAME, "invalid host name") from error
    return sorted(infos, key=lambda info: info[0] == socket.AF_INET6)


def forbidden_address(policy: Policy, host: str, port: int, infos: Iterable[AddressInfo]) -> str:
    """Return the first address that the policy forbids, "" if it allows all of them."""
    # One forbidden address among several is enough: which one is connected to may depend on who responds.
    infos = tuple(infos)
    for info in infos:
        if not policy.permits(host, port, str(info[4][0])):
            return str(info[4][0])
    return _internal_address(policy, host, port, [str(info[4][0]) for info in infos])


def _internal_address(policy: Policy, host: str, port: int, addresses: Sequence[str]) -> str:
    """Return the address if it is one of our own servers, unless the administrator has allowed the host."""
    if not policy.internal or policy.allows_name(host, port):
        return ""
    target = {host.rstrip(".").lower(), *addresses}
    for entry in policy.internal:
        name, entry_port = split_host_port(entry)
        if entry_port not in (0, port):
            continue
        internal = {name.rstrip(".")}
        with suppress(OSError):
            internal |= {str(info[4][0]) for info in resolve(name, port)}
        if internal & target:
            return addresses[0]
    return ""


class Forbidden(NotAllowed):
    """The policy forbids a connection; `reason` is for the administrator, not for the user."""

    def __init__(self, host: str, reason: str) -> None:
        super().__init__(
            f"connections to {host} are not allowed from this server",
            hint="use a public address, or ask the administrator to add it to [outbound] allow in the settings",
        )
        self.reason = reason


class Guard:
    """The connections of one operation under a policy.

    The sockets belong to the caller. The time limit begins with the first connection; a timer thread shuts the
    sockets down when it is exceeded.
    """

    def __init__(self, policy: Policy = UNRESTRICTED) -> None:
        self.policy = policy
        self.expired = False
        self._limited = False
        self._timer: threading.Timer | None = None
        # Duplicates, because wrapping a socket in TLS detaches the original.
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def connect(self, host: str, port: int, timeout: float | None, options: Options = ()) -> socket.socket:
        """Return a connection to a host; raise NotAllowed if the policy forbids one of its addresses."""
        self.check()
        self._start()
        try:
            infos = resolve(host, port)
        except OSError as error:
            if self.policy.restricted:
                raise Forbidden(host, f"cannot resolve {host}: {error}") from error
            raise
        if address := forbidden_address(self.policy, host, port, infos):
            raise Forbidden(host, f"{host} resolves to {address}, which is not allowed")
        sock = _connect_first(infos, timeout, options)
        self.watch(sock)
        return sock

    def watch(self, sock: socket.socket) -> None:
        """Also shut this connection down when the time limit is exceeded."""
        self._start()
        if self._timer is not None:
            with self._lock:
                self._sockets.append(sock.dup())
        if self.expired:
            sock.close()
            self.check()

    def _start(self) -> None:
        if not self._limited:
            self.limit(self.policy.seconds)

    def limit(self, seconds: float) -> None:
        """Set the time limit of the operation, from now on; 0 means none."""
        self._cancel()
        self._limited = True
        if seconds > 0:
            self._timer = threading.Timer(seconds, self._expire)
            self._timer.daemon = True
            self._timer.start()

    def check(self) -> None:
        """Raise BackendError if the time limit was exceeded."""
        if self.expired:
            raise BackendError("the server exceeded the time limit of the request", hint="try again later")

    def close(self) -> None:
        """Stop the timer; the connections stay open."""
        self._cancel()
        with self._lock:
            for sock in self._sockets:
                sock.close()
            self._sockets.clear()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self.expired = True
        # `shutdown` ends the connection for the caller's descriptor too, and wakes a blocked read.
        with self._lock:
            for sock in self._sockets:
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)


def _connect_first(infos: Sequence[AddressInfo], timeout: float | None, options: Options) -> socket.socket:
    """Connect to the first address that accepts, without resolving the name again."""
    # `socket.create_connection` would resolve it, possibly to another address than the one checked.
    last_error: OSError = OSError("the host has no address")
    for family, kind, protocol, _, address in infos:
        sock = socket.socket(family, kind, protocol)
        try:
            for option in options:
                sock.setsockopt(*option)
            sock.settimeout(timeout)
            sock.connect(address)
            return sock
        except OSError as error:
            last_error = error
            sock.close()
    raise last_error
