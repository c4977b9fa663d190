"""Finds a literal that every match of a pattern contains, for a quick search in blocks of many lines.

A gigabyte is searched for a literal at the speed of memory; only lines that contain it are matched with the
pattern.
"""

from __future__ import annotations

from collections.abc import Iterator

_LEAST = 3
_REPEATS = "*?{"
_SPECIAL = ".^$+[]"
# Groups, choices, and sets whose end is hard to find.
_UNSUPPORTED = ("(", "|", "[]", "[^]", "\\]")


def required_literal(pattern: str) -> bytes:
    """Return the longest literal that every match of a pattern contains; b"" if it is unknown.

    >>> [required_literal(pattern) for pattern in (r"batch 99700\\b", "loss.*nan", "a|b", "(?i)loss")]
    [b'batch 99700', b'loss', b'', b'']
    """
    if any(part in pattern for part in _UNSUPPORTED):
        return b""
    runs, run, at = list[str](), "", 0
    while at < len(pattern):
        letter, size, plain = pattern[at], 1, pattern[at] not in _SPECIAL
        if letter == "[":
            size = _set_end(pattern, at) - at
        elif letter == "\\" and at + 1 < len(pattern):
            letter, size = pattern[at + 1], 2
            # \b, \d, \w … are no characters of the text; \. is a dot.
            plain = not letter.isalnum()
        after = pattern[at + size : at + size + 1]
        if plain and letter not in "*?{}" and (not after or after not in _REPEATS):
            run += letter
        else:
            runs.append(run)
            run = ""
        # A repeat count is not text.
        if letter == "{":
            size = max(1, pattern.find("}", at) - at + 1)
        at += size
    longest = max((*runs, run), key=len)
    return longest.encode() if len(longest) >= _LEAST else b""


def _set_end(pattern: str, at: int) -> int:
    end = pattern.find("]", at + 2)
    return len(pattern) if end < 0 else end + 1


def lines_with(block: bytes, letters: bytes) -> Iterator[bytes]:
    """Yield the lines of a block that contain a literal, each with its newline."""
    at = block.find(letters)
    while at >= 0:
        begin = block.rfind(b"\n", 0, at) + 1
        end = block.find(b"\n", at) + 1 or len(block)
        yield block[begin:end]
        at = block.find(letters, end)
