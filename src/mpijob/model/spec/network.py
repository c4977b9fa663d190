"""Destinations of a job's pods: the entries of `network.egress`, and their meaning."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from urllib.parse import urlsplit

import msgspec

# A NetworkPolicy has address blocks and namespaces, but no host names. So a name inside the cluster means its
# namespace, and a name outside the public internet at its port. Nothing is resolved here: addresses change, and
# differ by network.
INTERNET = "internet"
_NAMESPACE = "namespace/"
# Schemes of URLs with a host, and their default ports. The first part of s3://bucket is not a host.
_PORTS = {
    "http": 80,
    "https": 443,
    "grpc": None,
    "tcp": None,
    "udp": None,
    "postgres": 5432,
    "postgresql": 5432,
    "mysql": 3306,
    "redis": 6379,
    "rediss": 6379,
    "amqp": 5672,
    "mongodb": 27017,
    "nats": 4222,
    "ftp": 21,
    "sftp": 22,
}
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_PUBLIC_ENDINGS = frozenset(
    ("com", "org", "net", "io", "ai", "dev", "edu", "gov", "mil", "int", "cloud", "app")
)


class Where(StrEnum):
    """The kind of a destination."""

    INTERNET = "internet"
    BLOCK = "block"
    NAMESPACE = "namespace"


class Destination(msgspec.Struct, frozen=True, order=True):
    """A destination; `value` is an address block or a namespace, no port means every port."""

    where: Where
    value: str = ""
    port: int | None = None

    def __str__(self) -> str:
        name = {
            Where.INTERNET: INTERNET,
            Where.NAMESPACE: f"{_NAMESPACE}{self.value}",
            Where.BLOCK: self.value,
        }[self.where]
        return name if self.port is None else f"{name}:{self.port}"


def covered(wanted: Destination, allowed: Iterable[str], home: str) -> bool:
    """Return whether an administrator's entries allow a destination to jobs of the namespace `home`.

    Entries have the form of `network.egress`; `*` allows everything, and the job's own namespace is always allowed.
    """
    if wanted.where is Where.NAMESPACE and wanted.value == home:
        return True
    return any(word == "*" or _covers(word, wanted, home) for word in allowed)


def _covers(word: str, wanted: Destination, home: str) -> bool:
    try:
        allowed = destination(word, home)
    except ValueError:
        # An invalid entry allows nothing.
        return False
    if allowed is None or allowed.where is not wanted.where or allowed.port not in (None, wanted.port):
        return False
    if wanted.where is not Where.BLOCK:
        return allowed.value == wanted.value
    wide, narrow = ipaddress.ip_network(allowed.value), ipaddress.ip_network(wanted.value)
    return wide.version == narrow.version and narrow.subnet_of(wide)  # type: ignore[arg-type] # both of one version


def destination(word: str, home: str) -> Destination | None:
    """Return the destination of an entry for jobs of the namespace `home`, None for the pod itself.

    Raise ValueError with the reason for an invalid entry.
    """
    scheme = urlsplit(word).scheme if "://" in word else ""
    if scheme and scheme not in _PORTS:
        raise ValueError(f"a destination has no scheme ({scheme}://)")
    host, port = _parts(word)
    return _place(host, port if port is not None else _PORTS.get(scheme), home)


def of_variables(variables: Iterable[str], home: str) -> Iterator[Destination]:
    """Yield the destinations in variables whose whole value is a URL like `https://s3.example.org`."""
    for value in variables:
        if value.partition("://")[0] not in _PORTS or "://" not in value:
            continue
        try:
            found = destination(value, home)
        except ValueError:
            # The value only starts like a URL.
            continue
        if found is not None:
            yield found


def destinations(egress: Iterable[str], env: Mapping[str, str], home: str) -> tuple[Destination, ...]:
    """Return the distinct destinations in a job's spec and variables."""
    named = (destination(word, home) for word in egress)
    found = {name for name in named if name is not None} | set(of_variables(env.values(), home))
    return tuple(sorted(found, key=lambda one: (one.where, one.value, one.port or 0)))


def _parts(word: str) -> tuple[str, int | None]:
    """Return host and port of an address; a block like 10.0.0.0/8 counts as a host here."""
    if "://" in word:
        parts = urlsplit(word)
        return parts.hostname or "", parts.port
    if word.startswith("["):
        host, _, rest = word[1:].partition("]")
        return host, _number(rest.removeprefix(":")) if rest else None
    if word.count(":") > 1:
        # IPv6 without brackets.
        return word, None
    host, colon, port = word.partition(":")
    return host, _number(port) if colon else None


def _number(port: str) -> int:
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError(f"'{port}' is not a port")
    return int(port)


def _place(host: str, port: int | None, home: str) -> Destination | None:
    if host == INTERNET:
        return Destination(Where.INTERNET, "", port)
    if host.startswith(_NAMESPACE):
        return Destination(Where.NAMESPACE, _label(host.removeprefix(_NAMESPACE)))
    if (block := _block(host)) is not None:
        return None if block.is_loopback else Destination(Where.BLOCK, str(block), port)
    return _named(host, port, home)


def _block(host: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(host, strict=False)
    except ValueError:
        return None


def _named(host: str, port: int | None, home: str) -> Destination | None:
    # NetworkPolicies apply to pods, whose ports may differ from their service's: the whole namespace is opened.
    labels = host.rstrip(".").split(".")
    for label in labels:
        _label(label)
    if labels == ["localhost"]:
        return None
    if len(labels) == 1:
        return Destination(Where.NAMESPACE, home)
    if len(labels) > 2 and labels[2] == "svc":
        return Destination(Where.NAMESPACE, labels[1])
    if len(labels) == 2 and len(labels[1]) > 2 and labels[1] not in _PUBLIC_ENDINGS:
        return Destination(Where.NAMESPACE, labels[1])
    return Destination(Where.INTERNET, "", port or 443)


def _label(text: str) -> str:
    if not (len(text) <= 63 and _LABEL.fullmatch(text)):
        raise ValueError(f"'{text}' is not a host name or a namespace")
    return text
