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
    STRONG,
    follows_failure,
    is_detail,
    is_fatal,
    is_progress,
    of_launcher,
    points,
    says_something,
)
from mpijob.diagnosis.logs.help_box import Box, boxes
from mpijob.diagnosis.logs.log_index import MOMENTS_SECONDS, SILENT, Stream, shown, streams
from mpijob.errors import Place

_AFTER_LINES = 3
_BEFORE_LINES = 6
_MORE_LINES = 2
_BOX_LINES = 5
_COMPLAINTS = 2
_LATE_LINES = 30  # before an end
_ANNOUNCED = 120  # characters of a report: by then it has said what it is about
_SURVIVED_LINES = 12  # of other text after an error
_SURVIVED = 6.0
_MOST_POINTS = 7.0  # of lines that are surely errors, the first one counts
_REPORT = 6.5  # points of a report in a box
_SHORT = 24  # a line that only announces: what it announces follows
_FRAME = re.compile(r"^[\s*│┃|╭╰─╮╯>]+|[\s*│┃|╭╰─╮╯]+$")
_BOXED = re.compile(rb"^\s*(?:\*|\||\xe2\x94\x82|\xe2\x94\x83)\s.*(?:\*|\||\xe2\x94\x82|\xe2\x94\x83)\s*$")
_SOURCE = re.compile(rb"^\s*(?:\S+ )?\s*File \"")  # the next line of a traceback is the program's text
_MARK = re.compile(rb"^\s*[\^~]+\s*$")  # below the program's text


class Telling(msgspec.Struct, frozen=True):
    """A line that stands out: its text with what it announces, where it is, and its points.

    `explicit` says that it calls itself an error.

    `very_last` says that nothing was said after it but what belongs to it: details, further errors, what follows any
    failure. `last` allows for two lines more, and `nearly_last` for some as other ranks wrote them before it,
    too, or for any after what calls itself fatal.
    `first` says that no other line called itself an error before it, but those that lead to it; `reported`,
    that a launcher or a run time reports a failure. `of_launcher` says that MPI or its launcher wrote the line, and
    not the program; `boxed` that it is a report in a box.
    """

    text: str
    points: float
    explicit: bool
    quote: str
    evidence: tuple[str, ...]
    place: Place
    time: float
    rank: int | None = None
    worker: int | None = None
    very_last: bool = False
    last: bool = False
    nearly_last: bool = False
    first: bool = False
    reported: bool = False
    of_launcher: bool = False
    boxed: bool = False


class _Line(msgspec.Struct, frozen=True):
    """One line: `other` if it is another subject than an error before it, `went_on` how many such follow it.

    `box` is the report that begins with it.
    """

    time: float
    stream: Stream
    at: int
    text: bytes
    points: float
    other: bool
    went_on: int
    box: Box | None = None

    @property
    def survived(self) -> bool:
        """Whether its speaker wrote much else after it."""
        return self.went_on > _SURVIVED_LINES


def find(
    seen: Evidence, *, before: float = math.inf, known: frozenset[str] = frozenset(), rank: int | None = None
) -> Telling | None:
    """Return the most telling line of everything that was said, if any line looks wrong.

    With `before`, of what was said until then; lines that `known` quotes are left out. Where `rank`, which
    ended first, reported an error, its lines alone count.
    """
    lines = sorted(
        (line for stream in streams(seen) for line in _lines(stream) if line.time < before),
        key=lambda line: line.time,
    )
    often = Counter(_shape(line.text) for line in lines)
    best: tuple[float, _Line] | None = None
    wrong = [line for line in lines if line.points >= ABNORMAL]
    own = [line for line in wrong if rank is not None and line.stream.rank == rank and line.points >= STRONG]
    for number, line in enumerate(own or wrong):
        if known and not known.isdisjoint(line.stream.quote(line.at, line.at)):
            continue
        rarity = math.log2(often[_shape(line.text)])
        score = min(line.points, _MOST_POINTS) + 2.0 / (1 + number / 2) - min(3.0, max(0.0, rarity - 1))
        score -= _SURVIVED if line.survived else 0.0
        if best is None or score > best[0] + 1e-9:
            best = score, line
    return None if best is None else _in_its_place(best[1], best[0], lines)


def _in_its_place(line: _Line, score: float, lines: list[_Line]) -> Telling:
    """Return a line with what was said before and after it."""
    earlier = {_shape(one.text) for one in lines if one.time < line.time}
    later = (one for one in lines if one.time > line.time and _same_speaker(one, line))
    others = [_shape(one.text) for one in later if one.other]
    new = len(set(others) - earlier)
    return msgspec.structs.replace(
        _told(line, score),
        very_last=not others,
        last=len(others) <= _MORE_LINES and new <= 1,
        nearly_last=len(others) <= _SURVIVED_LINES and (new <= 1 or is_fatal(line.text)),
        first=_is_first(line, lines),
        reported=any(follows_failure(one.text) for one in lines),
    )


def _lines(stream: Stream) -> list[_Line]:
    texts = stream.window.lines
    inside = {at: box for box in boxes(texts) for at in range(box.first, box.last + 1)}
    found: list[_Line] = []
    after = stream.after
    for at in range(len(texts) - 1, -1, -1):
        text = texts[at]
        if (box := inside.get(at)) is not None:
            found.append(_in_box(stream, at, box, after))
            continue
        source = text[:1].isspace() and at > 0 and _SOURCE.match(texts[at - 1])
        marked = at + 1 < len(texts) and _MARK.match(texts[at + 1])
        worth = 0.0 if source or marked else points(text)
        other = worth < ABNORMAL and not marked and not is_detail(text) and says_something(text)
        found.append(_Line(stream.time(at), stream, at, text, worth, other, after))
        after += other
    return found[::-1]


def _in_box(stream: Stream, at: int, box: Box, after: int) -> _Line:
    """Return a line of a report: the first one stands for all."""
    counts = at == box.first and box.text and not follows_failure(box.text[:_ANNOUNCED].encode())
    return _Line(
        stream.time(at), stream, at, stream.window.lines[at], _REPORT if counts else 0.0, False, after, box
    )


def _same_speaker(one: _Line, line: _Line) -> bool:
    return (one.stream.rank, one.stream.worker) == (line.stream.rank, line.stream.worker)


def _is_first(line: _Line, lines: list[_Line]) -> bool:
    """Whether every error before a line leads to it, with nothing else said between, or was survived."""
    unrelated = False  # whether another subject was spoken of after an error
    shape, error = _shape(line.text), False
    for one in lines:
        if one.time >= line.time:
            break
        if one.points >= EXPLICIT and not one.survived and _shape(one.text) != shape:
            error = True
        unrelated |= error and one.other
    return not unrelated


def last_before(seen: Evidence, time: float) -> tuple[str, ...]:
    """Return the last line before an end, where none looks wrong: it may be the reason, and proves nothing.

    Of the last ones it is one like no other: ranks and steps repeat what belongs to normal work.
    """
    said = sorted(
        (
            (when, stream, at)
            for stream in streams(seen)
            for at in range(stream.count)
            if (when := stream.time(at)) < time and says_something(stream.window.lines[at])
        ),
        key=lambda line: line[0],
    )
    if not said:
        return ()
    often = Counter(_shape(stream.window.lines[at]) for _, stream, at in said)
    late = [(stream, at) for _, stream, at in said[-_LATE_LINES:]]
    alone = [
        (stream, at)
        for stream, at in late
        if often[_shape(text := stream.window.lines[at])] == 1 and not is_progress(text)
    ]
    stream, at = (alone or late)[-1]
    return stream.quote(at, at)


def complaints_before(seen: Evidence, time: float) -> tuple[str, ...]:
    """Return the last lines before a crash that look wrong, each form once, if little else was written after them."""
    lines = [line for stream in streams(seen) for line in _lines(stream) if line.time < time]
    wrong = {
        _shape(line.text): line
        for line in lines
        if line.points >= ABNORMAL and line.went_on <= _SURVIVED_LINES
    }
    late = sorted(wrong.values(), key=lambda line: line.time)[-_COMPLAINTS:]
    return tuple(quote for line in late for quote in line.stream.quote(line.at, line.at))


def final_words(seen: Evidence, rank: int | None, ended: float) -> Telling | None:
    """Return what a rank wrote to stderr last, in the moments before its end; None where that is progress or a log.

    A line of a form that the rank wrote before is progress.
    """
    mine = [
        one
        for one in streams(seen)
        if rank is not None and one.rank == rank and one.window.stream == "stderr"
    ]
    lines = [line for stream in mine for line in _lines(stream) if ended - line.time <= MOMENTS_SECONDS]
    own = (line for line in lines if not SILENT.match(line.text))
    said = [line for line in own if says_something(line.text) and not is_detail(line.text)]
    if not said or is_progress(said[-1].text):
        return None
    often = Counter(_shape(line.text) for stream in mine for line in _lines(stream))
    return _told(said[-1], 0.0) if often[_shape(said[-1].text)] == 1 else None


def _told(line: _Line, score: float) -> Telling:
    stream, at = line.stream, line.at
    if line.box is not None:
        of_box = stream.quote(at, min(line.box.last, at + _BOX_LINES))
        quote = "".join(stream.quote(at, at))
        return Telling(line.box.text, score, True, quote, of_box, stream.place(at), line.time, stream.rank,
                       stream.worker, of_launcher=True, boxed=True)  # fmt: skip
    following = stream.window.lines[at + 1 : at + 1 + _AFTER_LINES]
    text = _unframed(line.text)
    if _BOXED.match(line.text):
        text = " ".join((text, *_rest_of_box(following)))
    for more in map(_unframed, following):
        if not (text.endswith(":") or (len(text) < _SHORT and ":" not in text)):
            break
        text = f"{text} {more}" if any(map(str.isalnum, more)) else text
    before = range(max(0, at - _BEFORE_LINES), at)  # a complaint just before may name what this one is about
    complaint = next((back for back in before if points(stream.window.lines[back]) >= ABNORMAL), None)
    quotes = [*(stream.quote(complaint, complaint) if complaint is not None else ()), *stream.quote(at, at)]
    for after, next_line in enumerate(following, start=at + 1):
        if follows_failure(next_line) or not any(map(str.isalnum, _unframed(next_line))):
            break
        quotes += stream.quote(after, after)
    quote = "".join(stream.quote(at, at))
    return Telling(text, score, line.points >= EXPLICIT, quote, tuple(quotes), stream.place(at), line.time,
                   stream.rank, stream.worker, of_launcher=of_launcher(line.text))  # fmt: skip


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
