"""One POST to an address that somebody wrote down: only to where it may go, signed, without following anybody.

A name is resolved once and every address of it must be a public one; the connection goes to the very address that was
checked, so a name that changes its mind in between leads nowhere else. Redirects are answers like any other.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import ipaddress
import socket
import ssl
from typing import Any
from urllib.parse import urlsplit

from mpijob.errors import BackendError, InvalidJob

SIGNATURE, DELIVERY = "X-MPIJob-Signature", "X-MPIJob-Delivery"
_SECONDS = 10.0
_MOST_BYTES = 64 << 10
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


def signature(secret: bytes, moment: int, body: bytes) -> str:
    """Return the signature of a body at a moment, as `t=…,v1=…`; the moment is signed too, against replays."""
    return f"t={moment},v1={hmac.new(secret, f'{moment}.'.encode() + body, hashlib.sha256).hexdigest()}"


def verified(secret: bytes, header: str, body: bytes, now: float, tolerance_seconds: float = 300.0) -> bool:
    """Return whether a signature is right and young: for receivers."""
    parts = dict(part.partition("=")[::2] for part in header.split(","))
    if not parts.get("t", "").isdecimal() or abs(now - int(parts["t"])) > tolerance_seconds:
        return False
    return hmac.compare_digest(signature(secret, int(parts["t"]), body), header)


def post(url: str, body: bytes, headers: dict[str, str], *, allow_private: bool = False) -> int:
    """Send a body and return the status; raise InvalidJob for an address that may not be called."""
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        raise InvalidJob(f"{url!r} is no address: {error}", hint="write https://HOST/PATH") from error
    _refuse(url, parts, allow_private)
    host = parts.hostname or ""
    address = resolved(host, port, allow_private=allow_private)
    connection = _connection(parts.scheme, host, port, address)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        connection.request(
            "POST", path, body, {"content-type": "application/json", "user-agent": "mpijob", **headers}
        )
        answer = connection.getresponse()
        answer.read(_MOST_BYTES)
        return int(answer.status)
    except (OSError, http.client.HTTPException) as error:
        raise BackendError(f"{parts.scheme}://{parts.netloc} did not take a callback: {error}") from error
    finally:
        connection.close()


def _refuse(url: str, parts: Any, allow_private: bool) -> None:
    if parts.scheme not in ("https", *(("http",) if allow_private else ())) or not parts.hostname:
        raise InvalidJob(
            f"{url!r} may not be called",
            hint="write https://…; http only with allow_private, for addresses of your own",
        )
    if parts.username or parts.password:
        raise InvalidJob(
            f"{parts.hostname}: names and passwords do not belong into an address", hint="use secret_file"
        )


def resolved(host: str, port: int, *, allow_private: bool = False) -> str:
    """Return the address of a host; refuse one of which any address is not public."""
    try:
        found = {info[4][0] for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError) as error:  # the latter of a name that cannot be one
        raise BackendError(f"{host} is not known: {error}") from error
    for address in found:
        if not allow_private and not is_public(str(address)):
            raise InvalidJob(
                f"{host} is at {address}, which is no public address",
                hint="an administrator may set allow_private for a callback to an address of their own",
            )
    return str(sorted(found, key=lambda one: ":" in str(one))[0])


def is_public(address: str) -> bool:
    """Return whether an address is one of the open internet, whatever it is wrapped in."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if ip in _NAT64:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            ip = inner
    return ip.is_global and not ip.is_multicast and not ip.is_reserved


def _connection(scheme: str, host: str, port: int, address: str) -> http.client.HTTPConnection:
    """Return a connection that goes to the checked address and speaks to the host by its name."""

    class Pinned(http.client.HTTPConnection):
        default_port = 443 if scheme == "https" else 80

        def connect(self) -> None:
            self.sock = socket.create_connection((address, port), _SECONDS)
            if scheme == "https":
                self.sock = ssl.create_default_context().wrap_socket(self.sock, server_hostname=host)

    return Pinned(host, port, timeout=_SECONDS)
