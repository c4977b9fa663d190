"""Where a process may connect on behalf of a user, and how much it reads from there (docs/decisions/0045).

`guard` applies a policy to connections.

A user's own process may connect anywhere. A server that acts for others may reach public addresses and those
its administrator allows; never itself, link-local addresses (the metadata service of a cloud), the API server
or the services of its own settings, unless they are allowed explicitly.
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

# The well-known prefix (RFC 6052): the last 32 bits are the IPv4 address.
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
# For local use (RFC 8215): where the IPv4 address is depends on the network.
_LOCAL_NAT64 = ipaddress.ip_network("64:ff9b:1::/48")
# Metadata services outside 169.254.0.0/16: Azure's wire server, Alibaba's, and AWS's and Google's over IPv6.
_METADATA = tuple(
    map(ipaddress.ip_address, ("168.63.129.16", "100.100.100.200", "fd00:ec2::254", "fd20:ce::254"))
)


class TooLarge(NotAllowed):
    """A response exceeds the size limit of this process."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """One policy; the default is for a user's own process. A limit of 0 means none."""

    restricted: bool = False
    # Networks, addresses and host names, each optionally with a port.
    allow: tuple[str, ...] = ()
    # Servers that other users must not reach through this process even if they are public: HOST, or HOST:PORT.
    internal: tuple[str, ...] = ()
    # Time limit of one operation, however many requests it sends.
    seconds: float = 0.0
    download_seconds: float = 0.0
    download_bytes: int = 0
    listed_objects: int = 0

    def permits(self, host: str, port: int, address: str) -> bool:
        """Return whether a connection to one address of a host is allowed, apart from `internal`."""
        if not self.restricted:
            return True
        ip = unwrap_address(address)
        if any(ip in network and allowed_port in (0, port) for network, allowed_port in self._networks()):
            return True
        # Not even for an allowed name: its owner chooses its address.
        if _is_special(ip):
            return False
        return self.allows_name(host, port) or is_public(address)

    def allows_name(self, host: str, port: int) -> bool:
        """Return whether the administrator has allowed a host; `*.example.org` matches all names below it."""
        host = host.rstrip(".").lower()
        for entry in self.allow:
            name, allowed_port = split_host_port(entry.lower())
            is_subdomain = name.startswith("*.") and host.endswith(name[1:])
            if (host == name or is_subdomain) and allowed_port in (0, port):
                return True
        return False

    def _networks(self) -> Iterable[tuple[Network, int]]:
        for entry in self.allow:
            name, port = split_host_port(entry)
            if (network := _network(name)) is not None:
                yield network, port


UNRESTRICTED = Policy()
PUBLIC = Policy(restricted=True)


def default_server_policy() -> Policy:
    return server_policy(OutboundSetting(), ())


def server_policy(setting: OutboundSetting, internal: Iterable[str]) -> Policy:
    """Return the policy of a server for several users; `internal` are URLs of internal servers."""
    for entry in setting.allow:
        _check(entry)
    try:
        download_bytes = int(quantity.parse(setting.download_bytes))
    except ValueError as error:
        raise InvalidJob(
            f"settings: outbound.download_bytes: {error}", hint='write a size such as "10Gi"'
        ) from error
    return Policy(
        restricted=True,
        allow=setting.allow,
        internal=tuple(dict.fromkeys(server for url in internal if (server := _host_port(url)))),
        seconds=setting.seconds,
        download_seconds=setting.download_seconds,
        download_bytes=download_bytes,
        listed_objects=setting.listed_objects,
    )


def is_public(address: str) -> bool:
    """Return whether an address is on the public internet, whatever it is embedded in."""
    ip = unwrap_address(address)
    return ip.is_global and not ip.is_multicast and not ip.is_reserved and not _is_special(ip)


def unwrap_address(address: str) -> Address:
    """Return the address that a packet reaches: an IPv4 address embedded in IPv6 is extracted."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        embedded = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if ip in _NAT64:
            embedded = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if embedded is not None:
            return embedded
    return ip


def _is_special(ip: Address) -> bool:
    """Return whether an address can be allowed by its network only: this machine, its link, metadata services."""
    special = ip.is_loopback or ip.is_link_local or ip.is_unspecified or ip.is_multicast or ip.is_reserved
    return special or ip in _METADATA or ip in _LOCAL_NAT64


def _network(entry: str) -> Network | None:
    try:
        return ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return None


def split_host_port(entry: str) -> tuple[str, int]:
    """Return host and port of an entry, 0 for any port."""
    host, colon, port = entry.rpartition(":")
    if colon and port.isdecimal() and (":" not in host or host.endswith("]")):
        return host.strip("[]"), int(port)
    return entry.strip("[]"), 0


def _check(entry: str) -> None:
    name, port = split_host_port(entry)
    host = name.removeprefix("*.")
    is_name = host and not any(char in host for char in "/*@: ")
    if port > 65535 or not (_network(name) or is_name):
        raise InvalidJob(
            f"settings: outbound.allow: {entry!r} is not a network, an address or a host name",
            hint='write "10.1.0.0/16", "minio.data.svc", "minio.data.svc:9000" or "*.example.org"',
        )


def _host_port(url: str) -> str:
    """Return `HOST:PORT` of a URL, a host as it is; "" if there is none."""
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
