"""What a network probe measured: who sits where, how fast each pair of workers talks, and which links stand out.

Links within one machine and links between machines are compared among themselves: shared memory is no network. A
link stands out when it is far from the median of its kind, and by more than a busy machine explains.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median

import msgspec

MARK = b"mpijob-network "
SLOW_BANDWIDTH, SLOW_LATENCY = 0.5, 3.0
_LEAST_MICROSECONDS = 50.0  # below that a latency is noise, however it compares


class Link(msgspec.Struct, frozen=True):
    """One pair of workers: microseconds one way, and megabytes a second."""

    low: int
    high: int
    latency_us: float
    bandwidth_mb: float


class Slow(msgspec.Struct, frozen=True):
    """A link that stands out, and by how much."""

    link: Link
    message: str


class Matrix(msgspec.Struct, frozen=True):
    """All that was measured; `hosts` and `nodes` by worker."""

    hosts: tuple[str, ...]
    nodes: tuple[str, ...]
    links: tuple[Link, ...]
    slow: tuple[Slow, ...] = ()
    suspects: tuple[str, ...] = ()

    def link(self, one: int, other: int) -> Link | None:
        """Return the link of two workers, in either order."""
        low, high = sorted((one, other))
        return next((link for link in self.links if (link.low, link.high) == (low, high)), None)


def read(lines: Iterable[bytes], nodes: Mapping[int, str]) -> Matrix:
    """Return what the ranks of a probe said; other lines are passed over."""
    hosts: dict[int, str] = {}
    links = []
    for line in lines:
        words = line.partition(MARK)[2].decode("utf-8", "replace").split() if MARK in line else []
        try:
            match words:
                case ["host", rank, host, _]:
                    hosts[int(rank)] = host
                case ["pair", low, high, latency, bandwidth]:
                    links.append(Link(int(low), int(high), float(latency), float(bandwidth)))
        except ValueError:
            continue  # somebody else's line
    names = tuple(hosts[rank] for rank in sorted(hosts))
    where = tuple(nodes.get(rank, "") for rank in sorted(hosts))
    return judged(Matrix(names, where, tuple(sorted(links, key=lambda one: (one.low, one.high)))))


def judged(matrix: Matrix) -> Matrix:
    """Return the matrix with the links that stand out, and the machines that all of those have in common."""
    slow: list[Slow] = []
    for kind in (True, False):
        mine = [link for link in matrix.links if _near(matrix, link) is kind]
        slow += _outstanding(matrix, mine, "on one machine" if kind else "between machines")
    return msgspec.structs.replace(matrix, slow=tuple(slow), suspects=_suspects(matrix, slow))


def _near(matrix: Matrix, link: Link) -> bool:
    """Whether both ends are on one machine."""
    low, high = _machine(matrix, link.low), _machine(matrix, link.high)
    return low == high


def _machine(matrix: Matrix, rank: int) -> str:
    if rank < len(matrix.nodes) and matrix.nodes[rank]:
        return matrix.nodes[rank]
    return matrix.hosts[rank] if rank < len(matrix.hosts) else str(rank)


def _outstanding(matrix: Matrix, links: list[Link], kind: str) -> Iterable[Slow]:
    if len(links) < 3:
        return  # nothing to compare with
    latency = median(link.latency_us for link in links)
    bandwidth = median(link.bandwidth_mb for link in links)
    for link in links:
        told = []
        if link.latency_us > max(SLOW_LATENCY * latency, _LEAST_MICROSECONDS):
            told.append(f"{link.latency_us:.0f} µs (median {latency:.0f} µs {kind})")
        if link.bandwidth_mb < SLOW_BANDWIDTH * bandwidth:
            told.append(f"{link.bandwidth_mb:.0f} MB/s (median {bandwidth:.0f} MB/s {kind})")
        if told:
            one, other = (f"worker {at} ({_machine(matrix, at)})" for at in (link.low, link.high))
            yield Slow(link, f"slow link between {one} and {other}: {', '.join(told)}")


def _suspects(matrix: Matrix, slow: list[Slow]) -> tuple[str, ...]:
    """Return the machines at which most of what stands out comes together: every link of theirs is slow."""
    bad = {(one.link.low, one.link.high) for one in slow}
    found = []
    for rank in range(len(matrix.hosts)):
        mine = [link for link in matrix.links if rank in (link.low, link.high)]
        if len(mine) > 1 and all((link.low, link.high) in bad for link in mine):
            found.append(_machine(matrix, rank))
    return tuple(dict.fromkeys(found))
