"""Connections under a policy: resolve a name once, check every address, connect to an address that was checked.

So DNS rebinding changes nothing. A forbidden host and an unknown host get the same error, without an address: the
error does not reveal what exists inside. When an operation exceeds its time limit, its sockets are shut down,
whatever they wait for: a TLS handshake, headers, or a body without end.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from mpijob.errors import BackendError, NotAllowed
from mpijob.outbound.policy import ANYWHERE, Policy, parted

Found = tuple[int, int, int, str, Any]  # as `socket.getaddrinfo` has it
Options = Sequence[tuple[int, int, int | bytes]]


def resolved(host: str, port: int) -> list[Found]:
    """Return the addresses of a host, those of IPv4 first; raise OSError where it is not known."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:  # of a name that cannot be one
        raise socket.gaierror(socket.EAI_NONAME, "this cannot be a name") from error
    return sorted(found, key=lambda one: one[0] == socket.AF_INET6)


def refused(policy: Policy, host: str, port: int, found: Iterable[Found]) -> str:
    """Return the first address that the policy forbids, "" where it allows all of them."""
    found = tuple(found)
    for one in found:
        if not policy.permits(host, port, str(one[4][0])):
            return str(one[4][0])
    return _own(policy, host, port, [str(one[4][0]) for one in found])


def _own(policy: Policy, host: str, port: int, addresses: Sequence[str]) -> str:
    """Return the address that is a server of our own, unless the administrator has named the host."""
    if not policy.own or policy.names(host, port):
        return ""
    asked = {host.rstrip(".").lower(), *addresses}
    for entry in policy.own:
        name, wanted = parted(entry)
        if wanted not in (0, port):
            continue
        own = {name.rstrip(".")}
        with suppress(OSError):
            own |= {str(one[4][0]) for one in resolved(name, port)}
        if own & asked:
            return addresses[0]
    return ""


class Forbidden(NotAllowed):
    """The policy forbids a connection; `why` is for whoever wrote the policy, and not for others to read."""

    def __init__(self, host: str, why: str) -> None:
        super().__init__(
            f"{host} may not be reached from this server",
            hint="use a public address, or ask the administrator to name it under [outbound] allow in the settings",
        )
        self.why = why


class Guard:
    """The connections of one operation under a policy."""

    def __init__(self, policy: Policy = ANYWHERE) -> None:
        self.policy = policy
        self.expired = False
        self._limited = False
        self._timer: threading.Timer | None = None
        self._watched: list[socket.socket] = []  # duplicates: wrapping in TLS detaches the original
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def connect(self, host: str, port: int, timeout: float | None, options: Options = ()) -> socket.socket:
        """Return a connection to a host; raise NotAllowed where the policy forbids one of its addresses."""
        self.check()
        self._start()
        try:
            found = resolved(host, port)
        except OSError as error:
            if self.policy.restricted:
                raise Forbidden(host, f"{host} is not known: {error}") from error
            raise
        if address := refused(self.policy, host, port, found):
            raise Forbidden(host, f"{host} is at {address}, which is no public address")
        sock = _connected(found, timeout, options)
        self.watch(sock)
        return sock

    def watch(self, sock: socket.socket) -> None:
        """Shut this connection down, too, when the operation has taken too long."""
        self._start()
        if self._timer is not None:
            with self._lock:
                self._watched.append(sock.dup())
        if self.expired:
            sock.close()
            self.check()

    def _start(self) -> None:
        if not self._limited:
            self.limit(self.policy.seconds)

    def limit(self, seconds: float) -> None:
        """Set the time limit of the operation, from now on; 0 is none."""
        self._cancel()
        self._limited = True
        if seconds > 0:
            self._timer = threading.Timer(seconds, self._expire)
            self._timer.daemon = True
            self._timer.start()

    def check(self) -> None:
        """Raise BackendError when the operation has taken too long."""
        if self.expired:
            raise BackendError("the server took longer to answer than it may", hint="try again later")

    def close(self) -> None:
        """Stop the clock; the sockets themselves belong to the caller."""
        self._cancel()
        with self._lock:
            for sock in self._watched:
                sock.close()
            self._watched.clear()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self.expired = True
        with self._lock:
            for sock in self._watched:
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)


def _connected(found: Sequence[Found], timeout: float | None, options: Options) -> socket.socket:
    """Connect to the first address that answers, without another lookup of the name."""
    failure: OSError = OSError("it has no address")
    for family, kind, protocol, _, address in found:
        sock = socket.socket(family, kind, protocol)
        try:
            for option in options:
                sock.setsockopt(*option)
            sock.settimeout(timeout)
            sock.connect(address)
            return sock
        except OSError as error:
            failure = error
            sock.close()
    raise failure
