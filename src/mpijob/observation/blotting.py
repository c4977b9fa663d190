"""Hide known values in bytes that come in pieces, before they are written down.

What a job's processes say is masked here where it becomes a log, so that the values of its secrets are in no file and
nobody has to know them later. A value that is cut in two by a read is found as well: what may be the beginning of one
is held back until the next piece or the end. No value goes over the end of a line, so a whole line never waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mpijob.observation.masking import MASK

_MASK = MASK.encode()


class Blotter:
    """Hides the given spellings (`masking.spellings`) in one stream."""

    def __init__(self, spellings: Iterable[str]) -> None:
        values = (one.encode("utf-8", "surrogateescape") for one in spellings)
        self._values = tuple(one for one in values if b"\n" not in one)
        self._firsts = frozenset(one[0] for one in self._values)
        self._longest = max(map(len, self._values), default=0)
        self._held = b""
        self._hidden = 0  # so many of these bytes belong to a mask that is written already

    def feed(self, data: bytes) -> bytes:
        """Return what can be written by now."""
        text = self._held + data
        return self._written(text, self._beginning(text))

    def flush(self) -> bytes:
        """Return what was held back: the stream has ended."""
        return self._written(self._held, len(self._held))

    def _beginning(self, text: bytes) -> int:
        """Return where something begins that may become a value with what comes next."""
        first = max(text.rfind(b"\n") + 1, len(text) - self._longest + 1)
        for at in range(first, len(text)):
            if text[at] in self._firsts and self._may_become(text[at:]):
                return at
        return len(text)

    def _may_become(self, tail: bytes) -> bool:
        return any(len(value) > len(tail) and value.startswith(tail) for value in self._values)

    def _written(self, text: bytes, until: int) -> bytes:
        """Return the text up to there without the values, and hold the rest back."""
        shown: list[bytes] = []
        at = 0
        for start, end in self._spans(text):
            begun = start == 0 and self._hidden > 0
            if start >= until and not begun:
                break
            if not begun:
                shown += (text[at:start], _MASK)
            at = end
        shown.append(text[at:until])
        self._held, self._hidden = text[until:], max(0, at - until)
        return b"".join(shown)

    def _spans(self, text: bytes) -> list[tuple[int, int]]:
        """Return where values are, in order; those that overlap are one."""
        merged: list[tuple[int, int]] = []
        begun = [(0, self._hidden)] if self._hidden else []
        for start, end in sorted([*begun, *self._found(text)]):
            if merged and start < merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((start, end))
        return merged

    def _found(self, text: bytes) -> Iterator[tuple[int, int]]:
        for value in self._values:
            at = text.find(value)
            while at >= 0:
                yield at, at + len(value)
                at = text.find(value, at + 1)
