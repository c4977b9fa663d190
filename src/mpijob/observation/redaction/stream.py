"""Hide known values in bytes that come in pieces, before they are written down.

What a job's processes say is masked here where it becomes a log, so that the values of its secrets are in no file and
nobody has to know them later. A value that is cut in two by a read is found as well: what may be the beginning of one
is held back until the next piece or the end. No value goes over the end of a line, so a whole line never waits.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

from mpijob.observation.redaction.masking import MASK
from mpijob.observation.redaction.multi_search import MultiPattern

_MASK = MASK.encode()


class StreamRedactor:
    """Hides the given spellings (`masking.spellings`) in one stream."""

    def __init__(self, spellings: Iterable[str]) -> None:
        self._needles = _needles(tuple(spellings))
        self._held = b""
        self._hidden = 0  # so many of these bytes belong to a mask that is written already

    def feed(self, data: bytes) -> bytes:
        """Return what can be written by now."""
        text = self._held + data
        starts = self._needles.starts(text)
        return self._written(text, self._needles.begun(text, starts), starts)

    def flush(self) -> bytes:
        """Return what was held back: the stream has ended."""
        return self._written(self._held, len(self._held), self._needles.starts(self._held))

    def _written(self, text: bytes, until: int, starts: list[int]) -> bytes:
        """Return the text up to there without the values, and hold the rest back."""
        shown: list[bytes] = []
        at = 0
        for start, end in self._spans(text, starts):
            begun = start == 0 and self._hidden > 0
            if start >= until and not begun:
                break
            if not begun:
                shown += (text[at:start], _MASK)
            at = end
        shown.append(text[at:until])
        self._held, self._hidden = text[until:], max(0, at - until)
        return b"".join(shown)

    def _spans(self, text: bytes, starts: list[int]) -> list[tuple[int, int]]:
        """Return where values are, in order; those that overlap are one."""
        merged: list[tuple[int, int]] = []
        begun = [(0, self._hidden)] if self._hidden else []
        for start, end in sorted([*begun, *self._needles.spans(text, starts)]):
            if merged and start < merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((start, end))
        return merged


@functools.lru_cache(maxsize=4)
def _needles(spellings: tuple[str, ...]) -> MultiPattern:
    """Return what the streams of one job look for: it is made once for all of them."""
    values = (one.encode("utf-8", "surrogateescape") for one in spellings)
    return MultiPattern(one for one in values if b"\n" not in one)
