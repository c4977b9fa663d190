"""Masks known values in bytes that arrive in chunks, before they are stored.

The output of a job's processes is masked where it becomes a log, so that no file has the values of its
secrets and no later reader has to know them. A value that two reads split is found as well: what may be the
beginning of one is held back until the next chunk or the end. No value spans lines, so a complete line never
waits.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

from mpijob.observation.redaction.masking import MASK
from mpijob.observation.redaction.multi_search import MultiPattern

_MASK = MASK.encode()


class StreamRedactor:
    """Masks the given spellings (`masking.spellings`) in one stream."""

    def __init__(self, spellings: Iterable[str]) -> None:
        self._patterns = _patterns(tuple(spellings))
        self._held = b""
        # This many of the held bytes belong to a mask that is already written.
        self._hidden = 0

    def feed(self, data: bytes) -> bytes:
        """Return what can be written now."""
        text = self._held + data
        starts = self._patterns.starts(text)
        return self._written(text, self._patterns.partial_start(text, starts), starts)

    def flush(self) -> bytes:
        """Return what was held back, at the end of the stream."""
        return self._written(self._held, len(self._held), self._patterns.starts(self._held))

    def _written(self, text: bytes, until: int, starts: list[int]) -> bytes:
        # The text before `until` without the values; the rest is held back.
        parts: list[bytes] = []
        at = 0
        for start, end in self._spans(text, starts):
            is_written = start == 0 and self._hidden > 0
            if start >= until and not is_written:
                break
            if not is_written:
                parts += (text[at:start], _MASK)
            at = end
        parts.append(text[at:until])
        self._held, self._hidden = text[until:], max(0, at - until)
        return b"".join(parts)

    def _spans(self, text: bytes, starts: list[int]) -> list[tuple[int, int]]:
        # In order; overlapping values are merged.
        merged: list[tuple[int, int]] = []
        written_mask = [(0, self._hidden)] if self._hidden else []
        for start, end in sorted([*written_mask, *self._patterns.spans(text, starts)]):
            if merged and start < merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((start, end))
        return merged


@functools.lru_cache(maxsize=4)
def _patterns(spellings: tuple[str, ...]) -> MultiPattern:
    # Cached: all streams of one job search for the same values.
    values = (spelling.encode("utf-8", "surrogateescape") for spelling in spellings)
    return MultiPattern(value for value in values if b"\n" not in value)
