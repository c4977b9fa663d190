"""Pieces of a large log: its head, its tail, and what stands around the places that a rule may know.

The text comes in blocks and is read once; what is kept is bounded, however long the log is. Who fetches the
blocks is the caller's business (`standalone_log`, an engine's evidence); what they mean that of `matcher`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from mpijob.diagnosis.logs.prefilter import Prefilter
from mpijob.diagnosis.logs.terminal_text import plain

HEAD_LINES, TAIL_LINES = 20, 60
BEFORE_BYTES, AFTER_BYTES = 2 << 10, 12 << 10
BLOCK_BYTES = 32 << 20
COUNTED_BYTES = 2 << 20
LINE_BYTES = 4096
MOST_LINES = 20_000


class Piece(NamedTuple):
    """Some lines that follow each other in a log; the first has this number, counted from 1, 0 if not known."""

    first: int
    lines: tuple[bytes, ...]


def cut(blocks: Iterable[bytes], sieve: Prefilter) -> list[Piece]:
    """Return the pieces of a log that may tell something, in order, none twice; the last one is its end."""
    reader = _Reader(sieve)
    rest = b""
    for block in blocks:
        end = block.rfind(b"\n") + 1
        if not end and len(rest) < BLOCK_BYTES:  # a line longer than a block is cut at last
            rest += block
            continue
        reader.take(rest + (block[:end] or block))
        rest = block[end:] if end else b""
    if rest:
        reader.take(rest)
    return reader.pieces()


class _Reader:
    """Takes whole lines, block by block, and keeps pieces of them."""

    def __init__(self, sieve: Prefilter) -> None:
        self._sieve = sieve
        self._kept: list[Piece] = []
        self._lines = 0
        self._blocks: list[bytes] = []  # the last one, not counted yet: a log that says nothing need not be
        self._before = 0
        self._tail = b""

    def take(self, block: bytes) -> None:
        """Keep what is worth keeping of some whole lines."""
        first = not self._kept
        self._before += sum(_count(one) for one in self._blocks)
        if first:
            self._keep(block, 0, _line_end(block, HEAD_LINES))
        for start, end in _spans(block, self._sieve.places(block)):
            if self._lines < MOST_LINES:
                self._keep(block, start, end)
        self._blocks = [block]
        begin = _line_start(block, TAIL_LINES)
        self._tail = _shortened(block[begin:] if begin else _last_lines(self._tail + block))

    def pieces(self) -> list[Piece]:
        """Return what was kept, with the end of the log; its lines are counted where that is worth it."""
        last = _split(self._tail)
        if not last:
            return []
        if len(self._kept) == 1 and not self._before and len(self._blocks[0]) > COUNTED_BYTES:
            return [*self._kept, Piece(0, last)]
        total = self._before + sum(_count(one) for one in self._blocks)
        return list(_joined([*self._kept, Piece(max(1, total - len(last) + 1), last)]))

    def _keep(self, block: bytes, start: int, end: int) -> None:
        lines = _split(block[start:end])
        self._kept.append(Piece(self._before + block.count(b"\n", 0, start) + 1, lines))
        self._lines += len(lines)


def _spans(block: bytes, places: Iterator[int]) -> Iterator[tuple[int, int]]:
    """Yield the ranges around places, widened to whole lines, joined where they touch."""
    start = end = -1
    for place in places:
        first = block.rfind(b"\n", 0, max(0, place - BEFORE_BYTES)) + 1
        last = block.find(b"\n", min(len(block), place + AFTER_BYTES)) + 1 or len(block)
        if first <= end:
            end = max(end, last)
            continue
        if end >= 0:
            yield start, end
        start, end = first, last
    if end >= 0:
        yield start, end


def _joined(pieces: list[Piece]) -> Iterator[Piece]:
    """Yield the pieces with those joined that overlap or follow each other."""
    held: Piece | None = None
    for piece in sorted(pieces, key=lambda piece: piece.first):
        if held is None:
            held = piece
            continue
        after = held.first + len(held.lines)
        if piece.first > after:
            yield held
            held = piece
        else:
            held = Piece(held.first, held.lines + piece.lines[max(0, after - piece.first) :])
    if held is not None and held.lines:
        yield held


def _count(block: bytes) -> int:
    return block.count(b"\n") + (0 if block.endswith(b"\n") else 1)


def _split(text: bytes) -> tuple[bytes, ...]:
    lines = text.removesuffix(b"\n").split(b"\n") if text else []
    return tuple(plain(line)[:LINE_BYTES] for line in lines)


def _line_end(block: bytes, lines: int) -> int:
    at = 0
    for _ in range(lines):
        at = block.find(b"\n", at) + 1
        if not at:
            return len(block)
    return at


def _line_start(block: bytes, lines: int) -> int:
    """Return where the last lines of a block begin; 0 when it has no more than those."""
    at = len(block) - block.endswith(b"\n")
    for _ in range(lines):
        at = block.rfind(b"\n", 0, at)
        if at < 0:
            return 0
    return at + 1


def _shortened(text: bytes) -> bytes:
    """Return a text with no more of each line than is kept: a log of progress bars may be a single line."""
    return b"\n".join(plain(line)[:LINE_BYTES] for line in text.split(b"\n"))


def _last_lines(text: bytes) -> bytes:
    return text[_line_start(text, TAIL_LINES) :]


__all__ = ["BLOCK_BYTES", "Piece", "cut"]
