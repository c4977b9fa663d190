"""Finds many known values in bytes, exactly and fast, and where one may have begun.

A token has a few values, a file of keys hundreds; searching for each costs values × bytes. So values that are
long enough are searched together: at every n-th byte, a lookup shows whether a piece of some value's
beginning is there. `stream` uses the result.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterable, Iterator

# Bytes that are looked up at once.
_PIECE = 8
# Longer values need a lookup at every 25th byte only (32 - 8 + 1).
_LONG = 32
# Up to this many short values are found faster one after the other.
_FEW = 64


class MultiPattern:
    """Values that are searched together."""

    def __init__(self, values: Iterable[bytes]) -> None:
        # Sorted, so that values with the same beginning are adjacent.
        self._values = sorted({value for value in values if value})
        self._known = frozenset(self._values)
        self.longest = max(map(len, self._values), default=0)
        self._head = min(_PIECE, min(map(len, self._values), default=1))
        self._sizes = _sizes(self._values, self._head)
        short = [value for value in self._values if len(value) < _LONG]
        heads = {value[: self._head] for value in short}
        self._heads = heads if len(heads) <= _FEW else set()
        self._searches = [
            _Search(values, reach)
            for values, reach in (
                ([value for value in self._values if len(value) >= _LONG], _LONG),
                ([] if self._heads else short, min(map(len, short), default=1)),
            )
            if values
        ]

    def starts(self, text: bytes) -> list[int]:
        """Return the offsets where a value may begin, in order: all true ones, and some false ones."""
        found = {at for head in self._heads for at in _places(head, text)}
        return sorted(found.union(*(search.starts(text) for search in self._searches)))

    def spans(self, text: bytes, starts: Iterable[int]) -> Iterator[tuple[int, int]]:
        """Yield where values are, from these starts; of those with the same start, the longest."""
        for at in starts:
            for size in self._sizes.get(text[at : at + self._head], ()):
                if at + size <= len(text) and text[at : at + size] in self._known:
                    yield at, at + size
                    break

    def partial_start(self, text: bytes, starts: Iterable[int]) -> int:
        """Return the offset in the last line where a value may begin that the next bytes complete; the end if
        there is none.
        """
        first = max(text.rfind(b"\n") + 1, len(text) - self.longest + 1)
        # Too near to the end to be found by every lookup.
        near = max(first, len(text) - _LONG)
        places = itertools.chain((at for at in starts if first <= at < near), range(near, len(text)))
        return next((at for at in places if self._may_become(text[at:])), len(text))

    def _may_become(self, tail: bytes) -> bool:
        at = bisect_right(self._values, tail)
        return at < len(self._values) and self._values[at].startswith(tail)


class _Search:
    """Finds values that all have at least `reach` bytes."""

    def __init__(self, values: Iterable[bytes], reach: int) -> None:
        self._piece = min(_PIECE, reach)
        # Any `step` consecutive pieces of a value include a multiple of the step, so every value is found.
        self._step = reach - self._piece + 1
        self._offsets: dict[bytes, tuple[int, ...]] = {}
        for value in values:
            for offset in range(self._step):
                piece = value[offset : offset + self._piece]
                known = self._offsets.get(piece, ())
                self._offsets[piece] = known if offset in known else (*known, offset)

    def starts(self, text: bytes) -> Iterator[int]:
        """Yield the offsets where such a value may begin."""
        known, size = self._offsets, self._piece
        for at in range(0, len(text) - size + 1, self._step):
            for offset in known.get(text[at : at + size], ()):
                if offset <= at:
                    yield at - offset


def _sizes(values: Iterable[bytes], head: int) -> dict[bytes, tuple[int, ...]]:
    # The longest first, by beginning.
    found: dict[bytes, set[int]] = {}
    for value in values:
        found.setdefault(value[:head], set()).add(len(value))
    return {beginning: tuple(sorted(sizes, reverse=True)) for beginning, sizes in found.items()}


def _places(value: bytes, text: bytes) -> Iterator[int]:
    at = text.find(value)
    while at >= 0:
        yield at
        at = text.find(value, at + 1)
