"""The line of a log that most likely names the cause, for failures that no rule knows.

`error_lines` says how much a line looks like an error. Here a line gains for being among the first that look wrong,
and loses for being repeated, because what healthy ranks say as well names no cause, and for being survived: who goes
on for long after an error did not fail by it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from mpijob.diagnosis.evidence import Evidence
from mpijob.diagnosis.logs.error_lines import (
    ABNORMAL,
    EXPLICIT,
    follows_failure,
    is_detail,
    points,
    says_something,
)
from mpijob.diagnosis.logs.log_index import Stream, shown, streams
from mpijob.errors import Place

_AFTER_LINES = 3
_BEFORE_LINES = 6
_SURVIVED_LINES = 12  # of other text after an error
_SURVIVED = 6.0
_SHORT = 24  # a line that only announces: what it announces follows
_FRAME = re.compile(r"^[\s*│┃|╭╰─╮╯>]+|[\s*│┃|╭╰─╮╯]+$")
_BOXED = re.compile(rb"^\s*(?:\*|\||\xe2\x94\x82|\xe2\x94\x83)\s.*(?:\*|\||\xe2\x94\x82|\xe2\x94\x83)\s*$")
_SOURCE = re.compile(rb"^\s*(?:\S+ )?\s*File \"")  # the next line of a traceback is the program's text
_MARK = re.compile(rb"^\s*[\^~]+\s*$")  # below the program's text


class Telling(msgspec.Struct, frozen=True):
    """A line that stands out: its text with what it announces, where it is, and its points.

    `last` says that nothing was said after it but what belongs to it: details, further errors, what follows any
    failure. `nearly_last` allows also for lines as they were written before it, by other ranks, and for one line more.
    `first` says that no other line called itself an error before it, but those that lead to it; `reported`,
    that a launcher or a run time reports a failure.
    """

    text: str
    points: float
    evidence: tuple[str, ...]
    place: Place
    time: float
    rank: int | None = None
    worker: int | None = None
    last: bool = False
    nearly_last: bool = False
    first: bool = False
    reported: bool = False


class _Line(msgspec.Struct, frozen=True):
    time: float
    stream: Stream
    at: int
    text: bytes
    points: float
    detail: bool


def find(seen: Evidence, *, before: float = math.inf, known: frozenset[str] = frozenset()) -> Telling | None:
    """Return the most telling line of everything that was said, if any line looks wrong.

    With `before`, of what was said until then; lines that `known` quotes are left out.
    """
    said = streams(seen)
    lines = [line for stream in said for line in _lines(stream) if line.time < before]
    often = Counter(_shape(line.text) for line in lines)
    wrong = sorted((line for line in lines if line.points >= ABNORMAL), key=lambda line: line.time)
    best: tuple[float, _Line] | None = None
    for number, line in enumerate(wrong):
        if known and not known.isdisjoint(line.stream.quote(line.at, line.at)):
            continue
        rarity = math.log2(often[_shape(line.text)])
        score = line.points + 2.0 / (1 + number / 2) - min(3.0, max(0.0, rarity - 1))
        if _went_on(line) > _SURVIVED_LINES:
            score -= _SURVIVED
        if best is None or score > best[0] + 1e-9:
            best = score, line
    if best is None:
        return None
    score, line = best
    earlier = {_shape(other.text) for other in lines if other.time < line.time}
    later = [other for other in lines if other.time > line.time and _same_speaker(other, line)]
    others = [_shape(other.text) for other in later if not _belongs(other)]
    return msgspec.structs.replace(
        _told(line, score),
        last=len(others) <= 2 and len(set(others) - earlier) <= 1,
        nearly_last=len(others) <= _SURVIVED_LINES and len(set(others) - earlier) <= 1,
        first=_first(line, lines),
        reported=any(follows_failure(other.text) for other in lines),
    )


def _lines(stream: Stream) -> Iterator[_Line]:
    texts = stream.window.lines
    for at, text in enumerate(texts):
        source = text[:1].isspace() and at > 0 and _SOURCE.match(texts[at - 1])
        marked = at + 1 < len(texts) and _MARK.match(texts[at + 1])
        worth = 0.0 if source or marked else points(text)
        yield _Line(stream.time(at), stream, at, text, worth, bool(marked) or is_detail(text))


def _same_speaker(other: _Line, line: _Line) -> bool:
    return (other.stream.rank, other.stream.worker) == (line.stream.rank, line.stream.worker)


def _first(line: _Line, lines: list[_Line]) -> bool:
    """Whether every error before a line leads to it, with nothing else said between, or was survived."""
    for other in lines:
        if other.points >= EXPLICIT and other.time < line.time and _went_on(other) <= _SURVIVED_LINES:
            between = (one for one in lines if other.time < one.time < line.time)
            if not all(_belongs(one) for one in between) and _shape(other.text) != _shape(line.text):
                return False
    return True


def _belongs(line: _Line) -> bool:
    """Whether a line after an error is no new subject: a further error, a detail, or what follows any failure."""
    return line.points >= ABNORMAL or line.detail or not says_something(line.text)


def _went_on(line: _Line) -> int:
    """Return how many lines of other text its speaker wrote after an error."""
    rest = line.stream.window.lines[line.at + 1 :]
    after = sum(says_something(text) and not is_detail(text) and points(text) < ABNORMAL for text in rest)
    return after + line.stream.after


def last_before(seen: Evidence, time: float) -> tuple[str, ...]:
    """Return what was said last before an end, where no line looks wrong: it may be the reason, and proves nothing."""
    said = [
        (when, stream, at)
        for stream in streams(seen)
        for at in range(stream.count)
        if (when := stream.time(at)) < time and says_something(stream.window.lines[at])
    ]
    if not said:
        return ()
    _, stream, at = max(said, key=lambda line: line[0])
    return stream.quote(at, at)


def _told(line: _Line, score: float) -> Telling:
    stream, at = line.stream, line.at
    following = stream.window.lines[at + 1 : at + 1 + _AFTER_LINES]
    text = _unframed(line.text)
    if _BOXED.match(line.text):
        text = " ".join((text, *_rest_of_box(following)))
    for more in map(_unframed, following):
        if not (text.endswith(":") or (len(text) < _SHORT and ":" not in text)):
            break
        text = f"{text} {more}" if any(map(str.isalnum, more)) else text
    complaints = (
        back
        for back in range(max(0, at - _BEFORE_LINES), at)
        if points(stream.window.lines[back]) >= ABNORMAL
    )
    before = next(complaints, None)  # just before it: may name what this one is about
    own = stream.quote(at, at + _AFTER_LINES)
    quotes = (*own[:1], *(stream.quote(before, before) if before is not None else ()), *own[1:])
    return Telling(text, score, quotes, stream.place(at), line.time, stream.rank, stream.worker)


def _rest_of_box(lines: Iterable[bytes]) -> Iterator[str]:
    for line in lines:
        if not _BOXED.match(line) or not any(map(str.isalnum, text := _unframed(line))):
            return
        yield text


def _unframed(line: bytes) -> str:
    """Return a line as text, without the frame that it is drawn in."""
    return _FRAME.sub("", shown(line))


def _shape(text: bytes) -> bytes:
    """Return a line without what differs between ranks and steps."""
    return re.sub(rb"\d+", b"#", text.strip()[:200])
