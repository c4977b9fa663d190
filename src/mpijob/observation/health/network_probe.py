"""Evaluates a network probe: the machine of each worker, the speed of each pair of workers, and slow links.

Links within one machine and links between machines are compared among themselves, because shared memory is no
network. A link is slow if it is far from the median of its kind, by more than a busy machine explains.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median

import msgspec

MARK = b"mpijob-network "
SLOW_BANDWIDTH, SLOW_LATENCY = 0.5, 3.0
# A latency below this is noise, however it compares.
_LEAST_MICROSECONDS = 50.0


class Link(msgspec.Struct, frozen=True):
    """One pair of workers: one-way microseconds, and megabytes per second."""

    low: int
    high: int
    latency_us: float
    bandwidth_mb: float


class Slow(msgspec.Struct, frozen=True):
    """A slow link, with a message."""

    link: Link
    message: str


class Matrix(msgspec.Struct, frozen=True):
    """All measurements; `hosts` and `nodes` by worker."""

    hosts: tuple[str, ...]
    nodes: tuple[str, ...]
    links: tuple[Link, ...]
    slow: tuple[Slow, ...] = ()
    suspects: tuple[str, ...] = ()

    def link(self, worker: int, other_worker: int) -> Link | None:
        """Return the link of two workers, in either order."""
        low, high = sorted((worker, other_worker))
        return next((link for link in self.links if (link.low, link.high) == (low, high)), None)


def read(lines: Iterable[bytes], nodes: Mapping[int, str]) -> Matrix:
    """Return the measurements in the output of a probe's ranks; other lines are ignored."""
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
            # A line of another program.
            continue
    names = tuple(hosts[rank] for rank in sorted(hosts))
    where = tuple(nodes.get(rank, "") for rank in sorted(hosts))
    return with_slow_links(Matrix(names, where, tuple(sorted(links, key=lambda link: (link.low, link.high)))))


def with_slow_links(matrix: Matrix) -> Matrix:
    """Return the matrix with its slow links, and the machines whose links are all slow."""
    slow: list[Slow] = []
    for same_machine in (True, False):
        links = [link for link in matrix.links if _is_on_one_machine(matrix, link) is same_machine]
        slow += _slow_links(matrix, links, "on one machine" if same_machine else "between machines")
    return msgspec.structs.replace(matrix, slow=tuple(slow), suspects=_suspects(matrix, slow))


def _is_on_one_machine(matrix: Matrix, link: Link) -> bool:
    low, high = _machine(matrix, link.low), _machine(matrix, link.high)
    return low == high


def _machine(matrix: Matrix, rank: int) -> str:
    if rank < len(matrix.nodes) and matrix.nodes[rank]:
        return matrix.nodes[rank]
    return matrix.hosts[rank] if rank < len(matrix.hosts) else str(rank)


def _slow_links(matrix: Matrix, links: list[Link], kind: str) -> Iterable[Slow]:
    if len(links) < 3:
        # Too few to compare with.
        return
    latency = median(link.latency_us for link in links)
    bandwidth = median(link.bandwidth_mb for link in links)
    for link in links:
        differences = []
        if link.latency_us > max(SLOW_LATENCY * latency, _LEAST_MICROSECONDS):
            differences.append(f"{link.latency_us:.0f} µs (median {latency:.0f} µs {kind})")
        if link.bandwidth_mb < SLOW_BANDWIDTH * bandwidth:
            differences.append(f"{link.bandwidth_mb:.0f} MB/s (median {bandwidth:.0f} MB/s {kind})")
        if differences:
            first, second = (f"worker {at} ({_machine(matrix, at)})" for at in (link.low, link.high))
            yield Slow(link, f"slow link between {first} and {second}: {', '.join(differences)}")


def _suspects(matrix: Matrix, slow: list[Slow]) -> tuple[str, ...]:
    # A machine all of whose links are slow is probably the cause; one with a single link proves nothing.
    slow_pairs = {(entry.link.low, entry.link.high) for entry in slow}
    found = []
    for rank in range(len(matrix.hosts)):
        links = [link for link in matrix.links if rank in (link.low, link.high)]
        if len(links) > 1 and all((link.low, link.high) in slow_pairs for link in links):
            found.append(_machine(matrix, rank))
    return tuple(dict.fromkeys(found))
