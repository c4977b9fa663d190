"""Client addresses: which peers are proxies, and which address a trusted proxy reports."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from mpijob.errors import InvalidJob

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Proxies:
    """The proxies in front of the server, from the setting `trusted_proxies`: addresses or networks."""

    def __init__(self, configured: Iterable[str] = ()) -> None:
        try:
            self._blocks = tuple(ipaddress.ip_network(network, strict=False) for network in configured)
        except ValueError as error:
            raise InvalidJob(
                f"trusted_proxies: {error}", hint="write addresses or blocks, such as 10.128.0.0/14"
            ) from error

    def trusts(self, peer: str) -> bool:
        """Return whether a peer may set `X-Forwarded-For`."""
        address = _parsed(peer)
        return address is not None and any(address in block for block in self._blocks)

    def speaks_for_many(self, peer: str) -> bool:
        """Return whether connections of a peer can belong to many clients, so that no limit per address
        applies.
        """
        address = _parsed(peer)
        # A sidecar proxy connects from loopback, and a Unix socket has no address.
        return address is None or address.is_loopback or self.trusts(peer)

    def forwarded_for(self, peer: str, header: str) -> tuple[str, ...]:
        """Return the addresses of the client and of the proxies between, nearest last."""
        chain = [peer]
        # Read from the end, while trusted proxies wrote it: what stands before them can be forged by the
        # client.
        for hop in reversed([hop.strip() for hop in header.split(",")][-16:]):
            if not self.trusts(chain[-1]) or _parsed(hop) is None:
                break
            chain.append(hop)
        return tuple(hop for hop in reversed(chain) if hop)


def _parsed(text: str) -> _Address | None:
    """Parse an address, without a zone; None for the peer of a Unix socket."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    # A dual-stack socket reports IPv4 peers as ::ffff:a.b.c.d.
    return getattr(address, "ipv4_mapped", None) or address
