"""The boxes of text in which Open MPI, PRRTE and PMIx report, each between two rules of 74 dashes (of 60, some).

A box is one report: its first paragraph says what happened, its `Name: value` lines what with. Warnings and reports
that follow any failure are boxes, too, and name no cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec

_RULE = re.compile(rb"(?<!-)(?:-{60}|-{74})\s*$")  # what another process wrote may stand before it
_MOST_LINES = 60
_MOST_VALUES = 4
_FIRST_LINES = 8  # some have lost the first ones
_TEXT = 320
_PROSE = re.compile(r"(?:\S*[A-Za-z]{2,}\S* ){4}")
_VALUE = re.compile(r"^ {0,8}([A-Z][\w #/().'-]{0,40}?) ?: {1,30}(\S.*)$")
_HARMLESS = re.compile(
    r"(?i)^\s*(?:warning\b|note\b|\[.{1,30}\]: a high-performance)|\b(?:will be (?:ignored|used instead|disabled)"
    r"|lower performance|turn off this (?:warning|message)|disable this (?:warning|message)|this warning"
    r"|not a fatal|non-fatal|continu(?:e|es|ing) (?:to run|anyway|without)|deprecat|may (?:be degraded|slow))"
)


class Box(msgspec.Struct, frozen=True):
    """A report: the numbers of its first and last line, and what it says in one line; empty where it is harmless."""

    first: int
    last: int
    text: str


def boxes(lines: Sequence[bytes]) -> Iterator[Box]:
    """Yield the boxes of some lines; the text between two boxes is none."""
    rules = [number for number, line in enumerate(lines) if _RULE.search(line)]
    closed = -1
    for at, end in pairwise((*rules, len(lines))):
        body = [line.decode("utf-8", "backslashreplace").rstrip() for line in lines[at + 1 : end]]
        if at == closed or len(body) > _MOST_LINES or not _PROSE.search(" ".join(body[:_FIRST_LINES])):
            continue
        first = next(n for n, line in enumerate(body) if line.strip())
        yield Box(at + 1 + first, end - 1, _told(body))
        closed = end


def _told(body: list[str]) -> str:
    whole = " ".join(body)
    if _HARMLESS.search(whole):
        return ""
    values = [match for line in body if (match := _VALUE.match(line))]
    paragraph = _paragraph(body)
    known = [f"{match[1]}: {match[2].strip()}" for match in values if match[2].strip() not in paragraph]
    return "; ".join((paragraph.rstrip(":. "), *known[:_MOST_VALUES]))


def _paragraph(body: list[str]) -> str:
    """Return the first paragraph as one line; a second one where the first only announces it."""
    words: list[str] = []
    for line in body:
        if _VALUE.match(line) and words:
            break
        if line.strip():
            words.append(" ".join(line.split()))
        elif words and not words[-1].endswith(":"):
            break
    text = " ".join(words)
    if len(text) <= _TEXT:
        return text
    end = text.rfind(". ", 40, _TEXT)
    return text[: end + 1] if end > 0 else text[:_TEXT] + "…"
