"""Merge many log streams into one, in time order.

Workers' clocks and pipes differ, so a line may arrive late. Live, each line is held back for a short
window before it is shown; a silent worker then delays nobody. Where it is said through which stream a line came,
nothing is held back while only one of them speaks: there is nobody to wait for. The lines of one source (the launcher,
a worker, a rank) keep the order in which they were said, even if its clock jumps. Fetching the
streams is the backend's business; `filters` says which lines are wanted.
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
LIVELY_NS = 1_000_000_000  # a stream that said nothing for so long is not waited for
MOST_LINES_HELD = 100_000
_FIRST_LINES, _MOST_LINES = (
    16,
    256,
)  # of a stream that are read at once: few at first, so that something is shown

_Held = tuple[int, int, LogLine]
_Source = tuple[str, int | None, int | None, int]


class Merger:
    """Order live lines with a hold-back window; the caller owns the clock."""

    def __init__(self, hold_ns: int = HOLD_NS, most_lines: int = MOST_LINES_HELD) -> None:
        self._hold_ns = hold_ns
        self._most_lines = most_lines
        self._arrived: deque[tuple[LogLine, Hashable]] = deque()
        self._heard: dict[Hashable, int] = {}  # when a stream spoke last, by the caller's clock
        self._held: list[_Held] = []
        self._several = False  # whether nobody said through what a line came
        self._last: dict[_Source, int] = {}
        self._now_ns = 0
        self._count = 0

    def __len__(self) -> int:
        return len(self._arrived) + len(self._held)

    def push(self, line: LogLine, stream: Hashable = None) -> None:
        """Take one line of any source; `stream` says through what it came, where lines of several come in order."""
        self._arrived.append((line, stream))

    def ready(self, now_ns: int) -> list[LogLine]:
        """Return the lines that have waited long enough, in order.

        No line waits longer than the window after it was first seen, whatever its own clock said;
        when more lines are held than fit into memory, the oldest go early.
        """
        self._now_ns = max(self._now_ns, now_ns)
        self._settle(self._now_ns)
        until = self._now_ns if self._alone() else self._now_ns - self._hold_ns
        lines: list[LogLine] = []
        while self._held and (self._held[0][0] <= until or len(self._held) > self._most_lines):
            lines.append(heapq.heappop(self._held)[2])
        return lines

    def _alone(self) -> bool:
        """Whether at most one stream has spoken lately, and all are known."""
        since = self._now_ns - LIVELY_NS
        self._heard = {stream: when for stream, when in self._heard.items() if when > since}
        return len(self._heard) < 2 and not self._several

    def drain(self) -> list[LogLine]:
        """Return everything that is still held, in order; used when all streams have ended."""
        self._settle(None)
        lines = [line for _, _, line in sorted(self._held, key=itemgetter(0, 1))]
        self._held.clear()
        return lines

    def _settle(self, now_ns: int | None) -> None:
        """Give each new line its place: not before its source's last line, not in the future."""
        while self._arrived:
            line, stream = self._arrived.popleft()
            source = _source(line)
            self._heard[source if stream is None else stream] = self._now_ns
            self._several |= stream is None
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
