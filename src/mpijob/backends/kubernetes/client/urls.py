"""Addresses taken apart and put together: a server's, and names in a path or a query.

What is plain, as nearly every server's address is, is read here; `urllib.parse`, which takes a while to
load, reads the rest.
"""

from __future__ import annotations

import msgspec

_DEFAULT_PORTS = {"https": 443, "http": 80}
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_DIGITS = "0123456789"
_HOST = frozenset(f"{_LETTERS}{_DIGITS}.-")
_UNRESERVED = frozenset(f"{_LETTERS}{_LETTERS.upper()}{_DIGITS}-._~")
_IN_PATH = _UNRESERVED | frozenset("/:@")


class Address(msgspec.Struct, frozen=True):
    """Where a server is; `authority` is host and port as it was written."""

    scheme: str
    host: str
    port: int
    path: str
    authority: str


def plain(url: str) -> Address | None:
    """Return the parts of an address that has nothing unusual; None for any other."""
    scheme, _, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    host, colon, port = authority.partition(":")
    if (
        scheme not in _DEFAULT_PORTS
        or not host
        or not _HOST.issuperset(host)
        or not _IN_PATH.issuperset(path)
    ):
        return None
    if colon and not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        return None
    return Address(scheme, host, int(port or _DEFAULT_PORTS[scheme]), slash + path, authority)


def of(server: str) -> Address:
    """Return the parts of a server's address that has been found usable before."""
    if found := plain(server):
        return found
    from urllib.parse import urlsplit

    parts = urlsplit(server)
    port = parts.port or _DEFAULT_PORTS[parts.scheme]
    return Address(parts.scheme, parts.hostname or "", port, parts.path, parts.netloc.rpartition("@")[2])


def in_path(text: str) -> str:
    """Return a path with every character that would mean something else written as %XX."""
    return _escaped(text, _IN_PATH)


def in_query(text: str) -> str:
    """Return a name or a value of a query with every character that would mean something written as %XX."""
    return _escaped(text, _UNRESERVED)


def _escaped(text: str, kept: frozenset[str]) -> str:
    if kept.issuperset(text):
        return text
    return "".join(chr(byte) if chr(byte) in kept else f"%{byte:02X}" for byte in text.encode())
