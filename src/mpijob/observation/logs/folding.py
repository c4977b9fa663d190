"""Several lines that people read as one: pieces of a long line, states of a progress bar, sixteen ranks in chorus.

Nothing is lost that a person would miss: the order of each rank's lines stays, a long line says how much of it
is left out, and whoever wants every byte downloads the log. Which lines come here is the business of `pipeline`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from mpijob.model import LogLine, Mark, Role

LONGEST_BYTES = 64 * 1024
CHORUS_NS = 250_000_000  # ranks that say the same within this time say it together
MOST_HELD = 10_000
BAR_NS = 5_000_000_000  # while a bar moves, it is shown this often

_Source = tuple[object, ...]


def _source(line: LogLine) -> _Source:
    return line.role, line.worker, line.rank, line.attempt, line.stream


class LineFolder:
    """Puts the pieces of a long line together, up to 64 KiB, and shows a progress bar as its last state.

    A bar that still moves is shown now and then, and only live.
    """

    def __init__(self, *, live: bool = False) -> None:
        self._live = live
        self._begun: dict[_Source, LogLine] = {}
        self._left_out: dict[_Source, int] = {}
        self._shown: dict[_Source, int] = {}

    def feed(self, line: LogLine) -> Iterable[LogLine]:
        """Return the line once its last piece is there."""
        if not line.partial and not self._begun and len(line.text) <= LONGEST_BYTES:
            return (line if b"\r" not in line.text else replace(line, text=last_state(line.text)),)
        source = _source(line)
        whole = self._with(source, line)
        if not line.partial:
            self._begun.pop(source, None)
            self._shown.pop(source, None)
            return (self._cut(source, whole),)
        self._begun[source] = whole
        return self._moving(source, whole, line.time) if self._live and b"\r" in line.text else ()

    def rest(self, now_ns: int | None) -> Iterable[LogLine]:
        """Return the lines that were begun and never ended, when all is said."""
        if now_ns is not None:
            return ()
        begun, self._begun = self._begun, {}
        return [self._cut(source, line) for source, line in begun.items()]

    def _with(self, source: _Source, line: LogLine) -> LogLine:
        begun = self._begun.get(source)
        text = line.text if begun is None else begun.text + line.text
        if b"\r" in text:
            text = last_state(text) + (b"\r" if text.endswith(b"\r") else b"")
        if len(text) > LONGEST_BYTES:
            self._left_out[source] = self._left_out.get(source, 0) + len(text) - LONGEST_BYTES
            text = text[:LONGEST_BYTES]
        return replace(line if begun is None else begun, text=text, partial=line.partial, marks=line.marks)

    def _moving(self, source: _Source, bar: LogLine, time: int) -> Iterable[LogLine]:
        if time - self._shown.get(source, 0) < BAR_NS:
            return ()
        self._shown[source] = time
        return (replace(bar, time=time, text=last_state(bar.text), partial=False),)

    def _cut(self, source: _Source, line: LogLine) -> LogLine:
        left_out = self._left_out.pop(source, 0)
        line = replace(line, text=last_state(line.text), partial=False)
        if not left_out:
            return line
        text = line.text + b" \xe2\x80\xa6 %d more bytes of this line are not shown" % left_out
        return replace(line, text=text, marks=(*line.marks, Mark.CUT))


def last_state(text: bytes) -> bytes:
    """Return what a terminal would show last of a line with carriage returns; those at its end say nothing."""
    if b"\r" not in text:
        return text
    for state in reversed(text.split(b"\r")):
        if state.strip():
            return state
    return b""


class _RepeatedLines:
    __slots__ = ("held_ns", "line", "number", "ranks")

    def __init__(self, line: LogLine, number: int) -> None:
        self.line = line
        self.number = number
        self.ranks = [line.rank]
        self.held_ns: int | None = None

    def sung(self) -> LogLine:
        ranks = tuple(sorted(rank for rank in self.ranks if rank is not None))
        return self.line if len(ranks) < 2 else replace(self.line, ranks=ranks)


class Fold:
    """Makes one line of what several ranks said alike at about the same time; each rank's order stays."""

    def __init__(self, chorus_ns: int = CHORUS_NS, most: int = MOST_HELD) -> None:
        self._chorus_ns = chorus_ns
        self._most = most
        self._held: deque[_RepeatedLines] = deque()
        self._by_text: dict[tuple[object, ...], deque[_RepeatedLines]] = {}
        self._last: dict[tuple[int | None, int], int] = {}  # by rank and attempt: the number of its last line
        self._count = 0

    def feed(self, line: LogLine) -> Iterable[LogLine]:
        """Return the lines that can wait no longer now that this one was said."""
        released = [*self._released(line.time)]
        if not self._joined(line):
            self._begin(line)
        return released

    def rest(self, now_ns: int | None) -> Iterable[LogLine]:
        """Return what has been held long enough by the caller's clock."""
        if now_ns is None:
            return [*self._all()]
        for one in self._held:
            if one.held_ns is None:
                one.held_ns = now_ns
        return [*self._held_since(now_ns - self._chorus_ns)]

    def _joined(self, line: LogLine) -> bool:
        if line.role is not Role.RANK or line.partial or line.marks:
            return False
        last = self._last.get((line.rank, line.attempt), -1)
        for one in self._by_text.get(_words(line), ()):
            if one.number > last:
                one.ranks.append(line.rank)
                self._last[line.rank, line.attempt] = one.number
                return True
        return False

    def _begin(self, line: LogLine) -> None:
        one = _RepeatedLines(line, self._count)
        self._count += 1
        self._held.append(one)
        if line.role is Role.RANK:
            self._last[line.rank, line.attempt] = one.number
        if line.role is Role.RANK and not line.partial and not line.marks:
            self._by_text.setdefault(_words(line), deque()).append(one)

    def _due(self, time: int) -> bool:
        return len(self._held) >= self._most or self._held[0].line.time < time - self._chorus_ns

    def _released(self, time: int) -> Iterator[LogLine]:
        while self._held and self._due(time):
            yield self._next()

    def _held_since(self, moment_ns: int) -> Iterator[LogLine]:
        while self._held and (self._held[0].held_ns or moment_ns + 1) <= moment_ns:
            yield self._next()

    def _all(self) -> Iterator[LogLine]:
        while self._held:
            yield self._next()

    def _next(self) -> LogLine:
        one = self._held.popleft()
        words = _words(one.line)
        if (alike := self._by_text.get(words)) and alike[0] is one:
            alike.popleft()
            if not alike:
                del self._by_text[words]
        return one.sung()


def _words(line: LogLine) -> tuple[object, ...]:
    return line.text, line.stream, line.attempt
