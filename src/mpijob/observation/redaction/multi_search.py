"""Where known values stand in bytes, and where one may have begun: exact, and fast however many values there are.

A token is a few values, a file of keys hundreds; to look for each by itself costs values × bytes. So those that are
long enough are looked for together: only every so many bytes, whether a piece of some value's beginning stands there.
What becomes of the places is the business of `stream`.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterable, Iterator

_PIECE = 8  # bytes that are looked up at once
_LONG = 32  # a value from here on is seen by a look at every 25th byte
_FEW = 64  # so many shorter values are found sooner one after the other


class MultiPattern:
    """Values that are looked for together."""

    def __init__(self, values: Iterable[bytes]) -> None:
        self._values = sorted({one for one in values if one})  # those that begin alike stand together
        self._known = frozenset(self._values)
        self.longest = max(map(len, self._values), default=0)
        self._head = min(_PIECE, min(map(len, self._values), default=1))
        self._sizes = _sizes(self._values, self._head)
        short = [one for one in self._values if len(one) < _LONG]
        heads = {one[: self._head] for one in short}
        self._heads = heads if len(heads) <= _FEW else set()
        self._looks = [
            _Search(some, reach)
            for some, reach in (
                ([one for one in self._values if len(one) >= _LONG], _LONG),
                ([] if self._heads else short, min(map(len, short), default=1)),
            )
            if some
        ]

    def starts(self, text: bytes) -> list[int]:
        """Return the places where a value may stand, in order: all where one does, and a few more."""
        found = {at for head in self._heads for at in _places(head, text)}
        return sorted(found.union(*(look.starts(text) for look in self._looks)))

    def spans(self, text: bytes, starts: Iterable[int]) -> Iterator[tuple[int, int]]:
        """Yield where values stand in a text with these starts; of those that begin together the longest."""
        for at in starts:
            for size in self._sizes.get(text[at : at + self._head], ()):
                if at + size <= len(text) and text[at : at + size] in self._known:
                    yield at, at + size
                    break

    def begun(self, text: bytes, starts: Iterable[int]) -> int:
        """Return where something begins in the last line that may become a value with what comes next."""
        first = max(text.rfind(b"\n") + 1, len(text) - self.longest + 1)
        near = max(first, len(text) - _LONG)  # too near to the end to be seen by every look
        places = itertools.chain((at for at in starts if first <= at < near), range(near, len(text)))
        return next((at for at in places if self._may_become(text[at:])), len(text))

    def _may_become(self, tail: bytes) -> bool:
        at = bisect_right(self._values, tail)
        return at < len(self._values) and self._values[at].startswith(tail)


class _Search:
    """Looks for values of which none is shorter than `reach`."""

    def __init__(self, values: Iterable[bytes], reach: int) -> None:
        self._piece = min(_PIECE, reach)
        self._step = reach - self._piece + 1  # one of so many neighbours is looked at, so every value is met
        self._offsets: dict[bytes, tuple[int, ...]] = {}
        for value in values:
            for offset in range(self._step):
                piece = value[offset : offset + self._piece]
                known = self._offsets.get(piece, ())
                self._offsets[piece] = known if offset in known else (*known, offset)

    def starts(self, text: bytes) -> Iterator[int]:
        """Yield where such a value may begin."""
        known, size = self._offsets, self._piece
        for at in range(0, len(text) - size + 1, self._step):
            for offset in known.get(text[at : at + size], ()):
                if offset <= at:
                    yield at - offset


def _sizes(values: Iterable[bytes], head: int) -> dict[bytes, tuple[int, ...]]:
    """Return how long the values with the same beginning are, the longest first."""
    found: dict[bytes, set[int]] = {}
    for value in values:
        found.setdefault(value[:head], set()).add(len(value))
    return {one: tuple(sorted(sizes, reverse=True)) for one, sizes in found.items()}


def _places(value: bytes, text: bytes) -> Iterator[int]:
    at = text.find(value)
    while at >= 0:
        yield at
        at = text.find(value, at + 1)
