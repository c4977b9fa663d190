"""Merges many log streams into one, in time order.

Workers' clocks and pipes differ, so a line may arrive late. Each live line is held back for a short window; a
silent worker delays no other. If the caller names the stream of each line, nothing is held back while only
one stream is active. The lines of one source (the launcher, a worker, a rank) keep their order even if its
clock jumps. Backends fetch the streams; `filters` selects lines.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Hashable, Iterable, Iterator
from itertools import islice
from operator import itemgetter

from mpijob.model import LogLine
from mpijob.observation.logs import merge_runs

HOLD_NS = 200_000_000
# A stream without output for so long is not waited for.
ACTIVE_NS = 1_000_000_000
MOST_LINES_HELD = 100_000
# Lines of a stream that are read at once: few at first, so that the first page appears soon.
_FIRST_LINES, _MOST_LINES = 16, 256

_Held = tuple[int, int, LogLine]
_Source = tuple[str, int | None, int | None, int]


class Merger:
    """Orders live lines with a hold-back window; the caller passes the time."""

    def __init__(self, hold_ns: int = HOLD_NS, most_lines: int = MOST_LINES_HELD) -> None:
        self._hold_ns = hold_ns
        self._most_lines = most_lines
        self._arrived: deque[tuple[LogLine, Hashable]] = deque()
        # When each stream's last line arrived, by the caller's clock.
        self._last_arrival: dict[Hashable, int] = {}
        self._held: list[_Held] = []
        # A line came without the name of its stream.
        self._has_unnamed = False
        self._last: dict[_Source, int] = {}
        self._now_ns = 0
        self._count = 0

    def __len__(self) -> int:
        return len(self._arrived) + len(self._held)

    def push(self, line: LogLine, stream: Hashable = None) -> None:
        """Add a line; `stream` names where it came from, if the lines of that stream arrive in order."""
        self._arrived.append((line, stream))

    def ready(self, now_ns: int) -> list[LogLine]:
        """Return the lines that have waited long enough, in order.

        No line waits longer than the window after it arrived, whatever its own timestamp; above the memory
        limit, the oldest are returned early.
        """
        self._now_ns = max(self._now_ns, now_ns)
        self._place_arrived(self._now_ns)
        until = self._now_ns if self._has_one_stream() else self._now_ns - self._hold_ns
        lines: list[LogLine] = []
        while self._held and (self._held[0][0] <= until or len(self._held) > self._most_lines):
            lines.append(heapq.heappop(self._held)[2])
        return lines

    def _has_one_stream(self) -> bool:
        since = self._now_ns - ACTIVE_NS
        self._last_arrival = {stream: when for stream, when in self._last_arrival.items() if when > since}
        return len(self._last_arrival) < 2 and not self._has_unnamed

    def drain(self) -> list[LogLine]:
        """Return all lines that are still held, in order, once all streams have ended."""
        self._place_arrived(None)
        lines = [line for _, _, line in sorted(self._held, key=itemgetter(0, 1))]
        self._held.clear()
        return lines

    def _place_arrived(self, now_ns: int | None) -> None:
        # Not before its source's last line, and not in the future: a clock that is ahead would hold lines
        # back indefinitely.
        while self._arrived:
            line, stream = self._arrived.popleft()
            source = _source(line)
            self._last_arrival[source if stream is None else stream] = self._now_ns
            self._has_unnamed |= stream is None
            place = line.time if now_ns is None else min(line.time, now_ns)
            place = max(place, self._last.get(source, place))
            self._last[source] = place
            self._count += 1
            heapq.heappush(self._held, (place, self._count, line))


def merged(streams: Iterable[Iterable[LogLine]]) -> Iterator[LogLine]:
    """Yield the lines of stored streams in time order, reading each only as far as needed."""
    for window in merge_runs.merged([_blocks(stream) for stream in streams]):
        yield from window


def _blocks(stream: Iterable[LogLine]) -> Iterator[merge_runs.Block[int, LogLine]]:
    lines, size = iter(stream), _FIRST_LINES
    while block := [*islice(lines, size)]:
        yield [line.time for line in block], block
        size = min(2 * size, _MOST_LINES)


def _source(line: LogLine) -> _Source:
    return line.role, line.worker, line.rank, line.attempt
