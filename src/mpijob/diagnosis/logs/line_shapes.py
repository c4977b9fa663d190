"""The shapes of lines: what is the same in lines that differ in numbers only, as those of steps and ranks do.

Many ranks write the same, each at its own time. So a line after an error shows that the work went on only if it says
what none said before the error: a line of another shape, or a further one of a series.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_NUMBER = re.compile(rb"[-+]?\d[\d.]*(?:[eEdD][-+]?\d+)?|\s+")
_VALUE = re.compile(rb"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?![\w.])")
_OF_RANK = re.compile(
    rb"(?i)(?:\b(?:rank|proc|process|worker|node|pid|device|gpu)\"?[ =:#]{0,2}|\[)\d+\]?|\d\d:\d\d:\d\d(?:[.,]\d+)?"
    rb"|\b\d{4}[-/]\d\d[-/]\d\d\b"
)


def shape(line: bytes) -> bytes:
    """Return a line without its numbers and blanks."""
    return _NUMBER.sub(b"", line)


def without_ranks_and_times(line: bytes) -> bytes:
    """Return a line without what differs when several ranks write the same."""
    return _OF_RANK.sub(b"", line)


def advances(line: bytes, before: Iterable[bytes]) -> bool:
    """Return whether a line is a further one of a series: others of its shape differ in numbers, and it from them.

    Ranks and times do not count: where several ranks write the same, one may write it later.
    """
    own = without_ranks_and_times(line)
    same = shape(line)
    others = {without_ranks_and_times(other) for other in before if shape(other) == same}
    return len(others) > 1 and own not in others


def new(after: Iterable[bytes], before: Sequence[bytes]) -> list[bytes]:
    """Return the lines that say what none did before, if they are several or one holds a value.

    A single line without one may be from the beginning: output to a pipe comes when a program ends, errors at once.
    """
    earlier = set(map(shape, before))
    found = [line for line in after if shape(line) not in earlier or advances(line, before)]
    several = len(set(map(shape, found))) > 1
    return found if several or any(_VALUE.search(without_ranks_and_times(line)) for line in found) else []
