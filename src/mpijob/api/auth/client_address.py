"""The addresses that requests come from: which of them are proxies that speak for many, and may name whom for."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from mpijob.errors import InvalidJob

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Proxies:
    """The proxies before the page, by the setting `trusted_proxies`: addresses, or blocks of them."""

    def __init__(self, configured: Iterable[str] = ()) -> None:
        try:
            self._blocks = tuple(ipaddress.ip_network(one, strict=False) for one in configured)
        except ValueError as error:
            raise InvalidJob(
                f"trusted_proxies: {error}", hint="write addresses or blocks, such as 10.128.0.0/14"
            ) from error

    def trusts(self, peer: str) -> bool:
        """Return whether a peer may say on whose behalf it asks."""
        address = _parsed(peer)
        return address is not None and any(address in block for block in self._blocks)

    def speaks_for_many(self, peer: str) -> bool:
        """Return whether connections of a peer may be many people's: a proxy beside us comes from loopback."""
        address = _parsed(peer)
        return address is None or address.is_loopback or self.trusts(peer)

    def forwarded_for(self, peer: str, header: str) -> tuple[str, ...]:
        """Return the addresses of who asks and of the proxies between, nearest last.

        The header is read backwards for as long as trusted proxies wrote it: what is before them, anybody can write.
        """
        chain = [peer]
        for one in reversed([one.strip() for one in header.split(",")][-16:]):
            if not self.trusts(chain[-1]) or _parsed(one) is None:
                break
            chain.append(one)
        return tuple(one for one in reversed(chain) if one)


def _parsed(text: str) -> _Address | None:
    """Return an address; one of IPv4 that came by way of IPv6 as what it is. None for a Unix socket's peer."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
