"""Where a process may connect on behalf of somebody, and how much it takes from there: a value that is handed down.

A user's own process may go anywhere. A server that acts for others goes to public addresses and to what its
administrator has named; never to itself, to link-local addresses (a cloud's metadata service), to the API server or
to the services of its own settings, unless they are named.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

import msgspec

from mpijob.errors import InvalidJob, NotAllowed
from mpijob.model.spec import quantity
from mpijob.settings import OutboundSetting

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_LOCAL_NAT64 = ipaddress.ip_network("64:ff9b:1::/48")
# metadata services outside of 169.254.0.0/16: Azure's wire server, Alibaba's, and those of AWS and Google over IPv6
_METADATA = tuple(
    map(ipaddress.ip_address, ("168.63.129.16", "100.100.100.200", "fd00:ec2::254", "fd20:ce::254"))
)


class TooLarge(NotAllowed):
    """An answer is larger than this process takes."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """One policy; the default is that of a user's own process. A bound of 0 is none."""

    restricted: bool = False
    allow: tuple[str, ...] = ()
    """Networks, addresses and names, also with a port behind them."""
    own: tuple[str, ...] = ()
    """Servers that others do not reach through this process though they may be public: HOST, or HOST:PORT."""
    seconds: float = 0.0
    """For one operation, however many requests it takes."""
    download_seconds: float = 0.0
    download_bytes: int = 0
    listed_objects: int = 0

    def permits(self, host: str, port: int, address: str) -> bool:
        """Return whether a connection to a host at one of its addresses is allowed, `own` aside."""
        if not self.restricted:
            return True
        ip = unwrapped(address)
        if any(ip in network and wanted in (0, port) for network, wanted in self._networks()):
            return True
        if _never(ip):
            return False
        return self.names(host, port) or is_public(address)

    def names(self, host: str, port: int) -> bool:
        """Return whether the administrator has named a host; `*.example.org` names all below example.org."""
        host = host.rstrip(".").lower()
        for entry in self.allow:
            name, wanted = parted(entry.lower())
            below = name.startswith("*.") and host.endswith(name[1:])
            if (host == name or below) and wanted in (0, port):
                return True
        return False

    def _networks(self) -> Iterable[tuple[Network, int]]:
        for entry in self.allow:
            name, port = parted(entry)
            if (found := _network(name)) is not None:
                yield found, port


ANYWHERE = Policy()
PUBLIC = Policy(restricted=True)


def strict() -> Policy:
    """Return the policy of a server that acts for others and whose administrator has set nothing."""
    return for_others(OutboundSetting(), ())


def for_others(setting: OutboundSetting, own: Iterable[str]) -> Policy:
    """Return the policy of a server that acts for others; `own` are addresses of servers that are not for them."""
    for entry in setting.allow:
        _check(entry)
    try:
        download_bytes = int(quantity.parse(setting.download_bytes))
    except ValueError as error:
        raise InvalidJob(
            f"settings: outbound.download_bytes: {error}", hint='write an amount such as "10Gi"'
        ) from error
    return Policy(
        restricted=True,
        allow=setting.allow,
        own=tuple(dict.fromkeys(found for one in own if (found := _place(one)))),
        seconds=setting.seconds,
        download_seconds=setting.download_seconds,
        download_bytes=download_bytes,
        listed_objects=setting.listed_objects,
    )


def is_public(address: str) -> bool:
    """Return whether an address is one of the open internet, whatever it is wrapped in."""
    ip = unwrapped(address)
    return ip.is_global and not ip.is_multicast and not ip.is_reserved and not _never(ip)


def unwrapped(address: str) -> Address:
    """Return the address that a packet reaches: IPv4 inside of IPv6 is taken out."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if ip in _NAT64:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            return inner
    return ip


def _never(ip: Address) -> bool:
    """Return whether no name opens an address, only its network: this machine, its link, metadata services."""
    special = ip.is_loopback or ip.is_link_local or ip.is_unspecified or ip.is_multicast or ip.is_reserved
    return special or ip in _METADATA or ip in _LOCAL_NAT64


def _network(entry: str) -> Network | None:
    try:
        return ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return None


def parted(entry: str) -> tuple[str, int]:
    """Return name and port of an entry, 0 for any port."""
    host, colon, port = entry.rpartition(":")
    if colon and port.isdecimal() and (":" not in host or host.endswith("]")):
        return host.strip("[]"), int(port)
    return entry.strip("[]"), 0


def _check(entry: str) -> None:
    name, port = parted(entry)
    plain = name.removeprefix("*.")
    is_name = plain and not any(letter in plain for letter in "/*@: ")
    if port > 65535 or not (_network(name) or is_name):
        raise InvalidJob(
            f"settings: outbound.allow: {entry!r} is no network, address or name",
            hint='write "10.1.0.0/16", "minio.data.svc", "minio.data.svc:9000" or "*.example.org"',
        )


def _place(url: str) -> str:
    """Return `HOST:PORT` of a URL, a host as it is; "" where there is none."""
    if "://" not in url:
        return url.strip().lower()
    parts = urlsplit(url)
    ports = {"http": 80, "https": 443, "postgresql": 5432, "postgres": 5432}
    try:
        port = parts.port or ports.get(parts.scheme, 0)
    except ValueError:
        port = 0
    host = parts.hostname or ""
    return f"{host}:{port}" if host and port else host
