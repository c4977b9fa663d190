"""Where in a large text the rules' literals occur: the one pass that reads everything.

A rule is tried only around such a place, so it costs nothing where its literal does not occur. With re2
(`mpijob[regex]`) all literals are searched together, about as fast as grep does; without it each is
searched by itself, which takes several times as long. A literal that occurs everywhere is dropped after
its first few places, so that noise costs no more than silence. `log_windows` cuts the text around the places.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any

PLACES = 12  # of each literal in one text; the first ones, because the first cause is wanted
_BLOCK = 1 << 20
_DIGITS = b"0123456789"
_Find = Callable[[bytes, int, int], "tuple[int, int] | None"]


class Prefilter:
    """A set of literals to be found together."""

    def __init__(self, literals: Iterable[str]) -> None:
        self._literals = frozenset(literal.encode() for literal in literals if literal)

    @property
    def fast(self) -> bool:
        """Whether all literals are searched together."""
        return not isinstance(_finder(self._literals), _Each)

    def any(self, text: bytes) -> bool:
        """Return whether any literal occurs in a text."""
        return bool(self._literals) and _finder(self._literals)(text, 0, len(text)) is not None

    def places(self, text: bytes) -> Iterator[int]:
        """Yield where literals begin, in order; of each only its first places."""
        left, seen = self._literals, dict.fromkeys(self._literals, 0)
        finder, at = _finder(left), 0
        while left and (found := finder(text, at, len(text))) is not None:
            start, end = found
            yield start
            literal, at = text[start:end], start + 1
            seen[literal] = seen.get(literal, 0) + 1
            if seen[literal] >= PLACES:
                left -= {literal}
                finder = _finder(left)


@lru_cache(maxsize=64)
def _finder(literals: frozenset[bytes]) -> _Find:
    try:
        import re2
    except ImportError:
        return _Each(literals)
    return _together(re2, literals)


def _together(re2: Any, literals: frozenset[bytes]) -> _Find:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = 64 << 20
    options.encoding = re2.Options.Encoding.LATIN1  # bytes as they are: logs need not be valid UTF-8
    compiled = re2.compile(b"|".join(re.escape(literal) for literal in sorted(literals)), options)

    def find(text: bytes, start: int, end: int) -> tuple[int, int] | None:
        match = compiled.search(text, start, end)
        return None if match is None else match.span()

    return find


class _Each:
    """The search without re2, block by block: only the literals that occur in a block are looked for in it.

    Which ones these are is seen in the block's different lines, with digits left out: of a log's thousand
    lines, most differ only in their numbers.
    """

    def __init__(self, literals: frozenset[bytes]) -> None:
        self._literals = [(literal, literal.translate(None, _DIGITS)) for literal in sorted(literals)]
        self._longest = max(map(len, literals), default=0)
        self._text = b""
        self._number = -1
        self._present: tuple[bytes, ...] = ()

    def __call__(self, text: bytes, start: int, end: int) -> tuple[int, int] | None:
        while start < end:
            number = start // _BLOCK
            stop = min(end, (number + 1) * _BLOCK)
            until = min(end, stop + self._longest)
            found = [
                (at, at + len(literal))
                for literal in self._in_block(text, number)
                if (at := text.find(literal, start, until)) >= 0
            ]
            if found:
                return min(found)
            start = stop
        return None

    def _in_block(self, text: bytes, number: int) -> tuple[bytes, ...]:
        """Return the literals that may occur in a block, or in what follows it."""
        if self._text is not text or self._number != number:
            block = text[number * _BLOCK : (number + 1) * _BLOCK + self._longest]
            lines = b"\n".join(set(block.translate(None, _DIGITS).split(b"\n")))
            self._text, self._number = text, number
            self._present = tuple(literal for literal, plain in self._literals if plain in lines)
        return self._present
