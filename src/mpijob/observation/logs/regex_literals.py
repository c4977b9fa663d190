"""What every text that a pattern matches must hold: found quickly in many lines at once, before one is looked at.

A gigabyte is searched for a few letters at the speed of memory; only lines that hold them are worth a pattern's look.
"""

from __future__ import annotations

from collections.abc import Iterator

_LEAST = 3
_REPEATS = "*?{"
_SPECIAL = ".^$+[]"
_ODD = ("(", "|", "[]", "[^]", "\\]")  # groups, choices, and sets whose end is hard to see


def needed(pattern: str) -> bytes:
    """Return the longest letters that every match of a pattern holds; b"" where that cannot be told simply.

    >>> needed(r"batch 99700\\b"), needed("loss.*nan"), needed("a|b"), needed("(?i)loss")
    (b'batch 99700', b'loss', b'', b'')
    """
    if any(odd in pattern for odd in _ODD):
        return b""
    runs, run, at = list[str](), "", 0
    while at < len(pattern):
        letter, size, plain = pattern[at], 1, pattern[at] not in _SPECIAL
        if letter == "[":
            size = _set_end(pattern, at) - at
        elif letter == "\\" and at + 1 < len(pattern):
            letter, size = pattern[at + 1], 2
            plain = not letter.isalnum()  # \b, \d, \w … are no letters; \. is a dot
        after = pattern[at + size : at + size + 1]
        if plain and letter not in "*?{}" and (not after or after not in _REPEATS):
            run += letter
        else:
            runs.append(run)
            run = ""
        if letter == "{":  # how often: no letters of the text
            size = max(1, pattern.find("}", at) - at + 1)
        at += size
    longest = max((*runs, run), key=len)
    return longest.encode() if len(longest) >= _LEAST else b""


def _set_end(pattern: str, at: int) -> int:
    end = pattern.find("]", at + 2)
    return len(pattern) if end < 0 else end + 1


def lines_with(block: bytes, letters: bytes) -> Iterator[bytes]:
    """Yield the lines of a block, each with its newline, that hold some letters."""
    at = block.find(letters)
    while at >= 0:
        begin = block.rfind(b"\n", 0, at) + 1
        end = block.find(b"\n", at) + 1 or len(block)
        yield block[begin:end]
        at = block.find(letters, end)
