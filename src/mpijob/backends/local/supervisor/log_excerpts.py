"""What was said before the end of long log files, around what the rules may know.

`logs.tails` has the last lines of every stream; where one failure makes all ranks talk, its cause may stand
before those.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from mpijob.backends.local.logs.log_reader import LogFileSource
from mpijob.diagnosis.evidence import Window
from mpijob.diagnosis.log_windows import BLOCK_BYTES, TAIL_LINES, Piece, cut
from mpijob.diagnosis.prefilter import Prefilter
from mpijob.model import LogLine

SHORT_BYTES = 16 << 10  # a file that is no longer has said it all in its last lines
MOST_BYTES = 512 << 20


def found(sources: Iterable[LogFileSource], sieve: Prefilter, since_ns: int) -> Iterator[Window]:
    """Yield the passages of long files that were said after a time; the files' ends are not among them."""
    left = MOST_BYTES if sieve.fast else MOST_BYTES // 16
    for source in sources:
        size = source.path.stat().st_size
        if SHORT_BYTES < size <= left:
            left -= size
            for piece in cut(_blocks(source.path), sieve)[:-1]:
                yield from (one for one in _windows(source, piece) if one.times[-1] >= since_ns)


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            yield block


def _windows(source: LogFileSource, piece: Piece) -> Iterator[Window]:
    streams: dict[str, list[tuple[int, LogLine]]] = {}
    for number, raw in enumerate(piece.lines, start=piece.first):  # never 0: only the log's end has no number
        line = source.line(raw)
        streams.setdefault(line.stream, []).append((number, line))
    for stream, lines in streams.items():
        first = lines[0][1]
        texts = tuple(line.text for _, line in lines)
        numbers, times = tuple(number for number, _ in lines), tuple(line.time for _, line in lines)
        yield Window(first.role, texts, numbers, times, stream, first.worker, first.rank, after=TAIL_LINES)
