"""Stored log files merged as bytes, block by block, for whoever wants everything.

A line of the result is `2026-01-31T09:00:00.000000000Z [Rank-3] text`; of the text not one byte is changed. Lines
are handled as Latin-1 text, which holds any byte and which Python compares fastest. A file whose lines do not all
look alike (pieces of long lines, stamps of other runtimes) is read by `cri`, line by line, block by block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import itemgetter

from mpijob.observation.logs import cri, merge_runs

FIRST_BYTES, MOST_BYTES = 2048, 8192  # of a file that are read at once: little stays in the processor's cache
_LONGEST_BYTES = 4 * 1024 * 1024  # a stored line longer than this is none of ours

_LOOKED_AT_BYTES = 40 * 1024  # holds the end of one stored line and the beginning of the next

_stamp = itemgetter(slice(0, 30))
_head = itemgetter(slice(29, 40))
_COMMON = frozenset(("Z stdout F ", "Z stderr F "))


def merged(files: Mapping[str, Iterable[bytes]]) -> Iterator[bytes]:
    """Yield the merged lines, many at a time; `files` gives each source's chunks by what it is called."""
    sources = [blocks(chunks, f" [{source}] ") for source, chunks in files.items()]
    for window in merge_runs.merged(sources, led=True):
        window.append("")
        yield "\n".join(window).encode("latin-1")


def blocks(chunks: Iterable[bytes], tag: str) -> Iterator[merge_runs.Block[str, str]]:
    """Yield time stamps and lines of one file, tagged with whose they are."""
    rest = b""
    for chunk in chunks:
        data = rest + chunk
        end = data.rfind(b"\n") + 1
        if not end and len(data) < _LONGEST_BYTES:
            rest = data
            continue
        end = end or len(data)
        rest = data[end:]
        yield _block(data[:end], tag)
    if rest:
        yield _block(rest, tag)


def places(read_at: Callable[[int, int], bytes], size: int, stamps: Iterable[str]) -> list[int]:
    """Return where a file reaches each of the time stamps, so that parts of it can be merged side by side."""
    found = [0]
    for wanted in stamps:
        low, high = found[-1], size
        while high - low > _LOOKED_AT_BYTES:
            middle = (low + high) // 2
            line = read_at(middle, _LOOKED_AT_BYTES).partition(b"\n")[2]
            low, high = (middle, high) if line[:30].decode("latin-1") < wanted else (low, middle)
        found.append(_reached(read_at(low, 2 * _LOOKED_AT_BYTES), low, found[-1], size, wanted))
    return [*found[1:], size]


def _reached(data: bytes, at: int, begin: int, size: int, wanted: str) -> int:
    """Return where the first line stands that is not before a time stamp; the first of them may be cut off."""
    stamp = wanted.encode("latin-1")
    if at > begin:
        at += data.find(b"\n") + 1
        data = data.partition(b"\n")[2]
    for line in data.splitlines(keepends=True):
        if line[:30] >= stamp:
            return at
        at += len(line)
    return min(at, size)


def _block(data: bytes, tag: str) -> merge_runs.Block[str, str]:
    lines = data.decode("latin-1").split("\n")
    if not lines[-1]:
        lines.pop()
    keys = [*map(_stamp, lines)]
    if not _COMMON.issuperset(map(_head, lines)):
        return _uncommon(lines, tag)
    return keys, [key + tag + line[40:] for key, line in zip(keys, lines, strict=True)]


def _uncommon(lines: list[str], tag: str) -> merge_runs.Block[str, str]:
    parsed = [cri.parse(line.encode("latin-1")) for line in lines]
    keys = [cri.stamp(line.time_ns).decode() for line in parsed]
    texts = [line.text.decode("latin-1") for line in parsed]
    return keys, [key + tag + text for key, text in zip(keys, texts, strict=True)]
