"""The table of `srun --multi-prog`: which ranks run which program, one line for each."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from mpijob.formats.convert.header import units
from mpijob.formats.convert.report import Notes

_PLAIN = re.compile(r"[-\w./:=,@+]+")
_LINE = re.compile(r"\s*([-0-9,]+)\s+(\S.*)")


def read(text: str, notes: Notes) -> tuple[tuple[int, tuple[str, ...]], ...]:
    """Return (ranks, words) of each line; nothing when the ranks do not follow each other from 0."""
    found: list[tuple[int, tuple[str, ...]]] = []
    following = 0
    for line in text.split("\n"):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        ranks = units.tasks(match[1]) if match else None
        if (
            match is None
            or ranks is None
            or ranks[0] != str(following)
            or ranks[-1] != str(following + len(ranks) - 1)
        ):
            return ()
        following += len(ranks)
        try:
            words = shlex.split(match[2])
        except ValueError:
            return ()
        if any("%t" in word or "%o" in word for word in words):
            note = "the rank's own number in an argument is not written there"
            notes.dropped("srun --multi-prog", match[2], note, "use MPIJOB_RANK in the program", blocks=True)
        found.append((len(ranks), tuple(shlex.quote(word) for word in words)))
    return tuple(found)


def write(commands: Sequence[tuple[int, Sequence[str]]]) -> str:
    """Return the table of (ranks, words), in the order of the ranks; every word must be `sayable`."""
    lines, first = [], 0
    for ranks, words in commands:
        last = first + ranks - 1
        span = f"{first}-{last}" if last > first else str(first)
        lines.append(" ".join([span, *(_quoted(word) for word in words)]))
        first = last + 1
    return "\n".join(lines) + "\n"


def sayable(word: str) -> bool:
    """Return whether a table can hold a word: srun knows single quotes around it, and no more (tried on 22.05)."""
    return word != "" and not any(letter in word for letter in "%\\\n'\"")


def _quoted(word: str) -> str:
    return word if _PLAIN.fullmatch(word) else f"'{word}'"
