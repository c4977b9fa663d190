"""Combines lines that are read as one: parts of a long line, states of a progress bar, equal lines of several
ranks.

The order of each rank's lines is kept, and a shortened line states how much is missing; a download has every
byte. `pipeline` decides which lines arrive here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from mpijob.model import LogLine, Mark, Role

LONGEST_BYTES = 64 * 1024
# Equal lines of several ranks within this time become one.
REPEAT_NS = 250_000_000
MOST_HELD = 10_000
# A progress bar that moves is shown this often.
PROGRESS_BAR_NS = 5_000_000_000

_Source = tuple[object, ...]


def _source(line: LogLine) -> _Source:
    return line.role, line.worker, line.rank, line.attempt, line.stream


class LineFolder:
    """Joins the parts of a long line, up to 64 KiB, and shows a progress bar as its last state.

    With `live`, a bar that still moves is shown every few seconds.
    """

    def __init__(self, *, live: bool = False) -> None:
        self._live = live
        self._unfinished: dict[_Source, LogLine] = {}
        self._left_out: dict[_Source, int] = {}
        self._shown: dict[_Source, int] = {}

    def feed(self, line: LogLine) -> Iterable[LogLine]:
        """Return the line once its last part has arrived."""
        if not line.partial and not self._unfinished and len(line.text) <= LONGEST_BYTES:
            return (line if b"\r" not in line.text else replace(line, text=last_state(line.text)),)
        source = _source(line)
        whole = self._joined_line(source, line)
        if not line.partial:
            self._unfinished.pop(source, None)
            self._shown.pop(source, None)
            return (self._cut(source, whole),)
        self._unfinished[source] = whole
        return self._progress_bar(source, whole, line.time) if self._live and b"\r" in line.text else ()

    def rest(self, now_ns: int | None) -> Iterable[LogLine]:
        """Return the unfinished lines at the end of the stream (`now_ns` is None)."""
        if now_ns is not None:
            return ()
        unfinished, self._unfinished = self._unfinished, {}
        return [self._cut(source, line) for source, line in unfinished.items()]

    def _joined_line(self, source: _Source, line: LogLine) -> LogLine:
        unfinished = self._unfinished.get(source)
        text = line.text if unfinished is None else unfinished.text + line.text
        if b"\r" in text:
            text = last_state(text) + (b"\r" if text.endswith(b"\r") else b"")
        if len(text) > LONGEST_BYTES:
            self._left_out[source] = self._left_out.get(source, 0) + len(text) - LONGEST_BYTES
            text = text[:LONGEST_BYTES]
        return replace(unfinished or line, text=text, partial=line.partial, marks=line.marks)

    def _progress_bar(self, source: _Source, bar: LogLine, time: int) -> Iterable[LogLine]:
        if time - self._shown.get(source, 0) < PROGRESS_BAR_NS:
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
    """Return what a terminal would show last of a line with carriage returns; trailing ones are ignored."""
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

    def folded(self) -> LogLine:
        ranks = tuple(sorted(rank for rank in self.ranks if rank is not None))
        return self.line if len(ranks) < 2 else replace(self.line, ranks=ranks)


class RepeatFolder:
    """Combines equal lines that several ranks wrote at about the same time; the order of each rank's lines is
    kept.
    """

    def __init__(self, repeat_ns: int = REPEAT_NS, most: int = MOST_HELD) -> None:
        self._repeat_ns = repeat_ns
        self._most = most
        self._held: deque[_RepeatedLines] = deque()
        self._by_text: dict[tuple[object, ...], deque[_RepeatedLines]] = {}
        # By rank and attempt: the number of its last line.
        self._last: dict[tuple[int | None, int], int] = {}
        self._count = 0

    def feed(self, line: LogLine) -> Iterable[LogLine]:
        """Return the lines that are complete now that this one has arrived."""
        released = [*self._released(line.time)]
        if not self._joined(line):
            self._hold(line)
        return released

    def rest(self, now_ns: int | None) -> Iterable[LogLine]:
        """Return the lines that were held long enough by the caller's clock."""
        if now_ns is None:
            return [*self._all()]
        # By the caller's clock, because the lines' times are those of other machines.
        for repeated in self._held:
            if repeated.held_ns is None:
                repeated.held_ns = now_ns
        return [*self._held_since(now_ns - self._repeat_ns)]

    def _joined(self, line: LogLine) -> bool:
        if line.role is not Role.RANK or line.partial or line.marks:
            return False
        last = self._last.get((line.rank, line.attempt), -1)
        # Only a line after the rank's last one: joining an earlier one would change the rank's order.
        for repeated in self._by_text.get(_key(line), ()):
            if repeated.number > last:
                repeated.ranks.append(line.rank)
                self._last[line.rank, line.attempt] = repeated.number
                return True
        return False

    def _hold(self, line: LogLine) -> None:
        repeated = _RepeatedLines(line, self._count)
        self._count += 1
        self._held.append(repeated)
        if line.role is Role.RANK:
            self._last[line.rank, line.attempt] = repeated.number
        if line.role is Role.RANK and not line.partial and not line.marks:
            self._by_text.setdefault(_key(line), deque()).append(repeated)

    def _due(self, time: int) -> bool:
        return len(self._held) >= self._most or self._held[0].line.time < time - self._repeat_ns

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
        repeated = self._held.popleft()
        key = _key(repeated.line)
        if (same_text := self._by_text.get(key)) and same_text[0] is repeated:
            same_text.popleft()
            if not same_text:
                del self._by_text[key]
        return repeated.folded()


def _key(line: LogLine) -> tuple[object, ...]:
    return line.text, line.stream, line.attempt
