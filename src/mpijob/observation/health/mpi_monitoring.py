"""Reads which ranks exchange messages from the output of Open MPI's monitoring component.

At the end, each rank reports how many messages and bytes it sent to each other rank: by the program's own
calls (`E`), inside the library for collective calls (`I`), and one-sided (`S`, `R`); and what collective
calls of each pattern moved. The component counts; it measures no times.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec

SETTINGS: Mapping[str, str] = {
    "pml": "ob1,monitoring",
    "pml_monitoring_enable": "2",
    "pml_monitoring_enable_output": "2",
}
_LINE = re.compile(rb"\b([EISR])\s+(\d+)\s+(\d+)\s+(\d+) bytes\s+(\d+) msgs sent\b")
_COLLECTIVE = re.compile(rb"\b(O2A|A2O|A2A)\s+(\d+)\s+(\d+) bytes\s+(\d+) msgs sent\b")


class RankPair(msgspec.Struct, frozen=True):
    """What one rank sent to another."""

    sender: int
    receiver: int
    messages: int
    size: int


class MpiTraffic(msgspec.Struct, frozen=True):
    """Messages by the program's own calls, inside the library, and by collective calls of each pattern."""

    flows: tuple[RankPair, ...] = ()
    inner: tuple[RankPair, ...] = ()
    collective: Mapping[str, tuple[int, int]] = {}

    @property
    def size(self) -> int:
        """Bytes that ranks sent to each other in total."""
        return sum(flow.size for flow in (*self.flows, *self.inner))


_SHAPES = {b"O2A": "one to all", b"A2O": "all to one", b"A2A": "all to all"}


def read(lines: Iterable[bytes]) -> MpiTraffic:
    own: dict[tuple[int, int], tuple[int, int]] = {}
    inner: dict[tuple[int, int], tuple[int, int]] = {}
    shapes: dict[str, tuple[int, int]] = {}
    for line in lines:
        if found := _LINE.search(line):
            kind, sender, receiver, size, messages = found.groups()
            where, pair = inner if kind == b"I" else own, (int(sender), int(receiver))
            where[pair] = _more(where.get(pair), size, messages)
        elif found := _COLLECTIVE.search(line):
            shape, _, size, messages = found.groups()
            shapes[_SHAPES[shape]] = _more(shapes.get(_SHAPES[shape]), size, messages)
    return MpiTraffic(_flows(own), _flows(inner), {name: sums for name, sums in shapes.items() if sums[1]})


def _more(before: tuple[int, int] | None, size: bytes, messages: bytes) -> tuple[int, int]:
    held, count = before or (0, 0)
    return held + int(size), count + int(messages)


def _flows(found: Mapping[tuple[int, int], tuple[int, int]]) -> tuple[RankPair, ...]:
    return tuple(
        RankPair(sender, receiver, messages, size)
        for (sender, receiver), (size, messages) in sorted(found.items())
        if messages
    )
