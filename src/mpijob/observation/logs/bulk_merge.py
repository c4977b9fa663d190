"""Merges stored log files as bytes, block by block, for complete downloads.

A line of the result is `2026-01-31T09:00:00.000000000Z [Rank-3] text`; the text is unchanged. Lines are
handled as Latin-1 strings, which hold any byte and which Python compares fastest. A block with unusual lines
(parts of long lines, timestamps of other runtimes) is parsed by `cri`, line by line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import itemgetter

from mpijob.observation.logs import cri, merge_runs

# Bytes read from a file at once: small blocks stay in the processor's cache.
FIRST_BYTES, MOST_BYTES = 2048, 8192
# A longer line is not from our log writer.
_LONGEST_BYTES = 4 * 1024 * 1024
# Contains the end of one stored line and the whole next one: lines are cut at 16 KiB.
_SEARCH_BYTES = 40 * 1024

_stamp = itemgetter(slice(0, 30))
_head = itemgetter(slice(29, 40))
_COMMON = frozenset(("Z stdout F ", "Z stderr F "))


def merged(files: Mapping[str, Iterable[bytes]]) -> Iterator[bytes]:
    """Yield the merged lines, many at a time; `files` has the chunks of each source by its name."""
    sources = [blocks(chunks, f" [{source}] ") for source, chunks in files.items()]
    for window in merge_runs.merged(sources, key_prefixed=True):
        window.append("")
        yield "\n".join(window).encode("latin-1")


def blocks(chunks: Iterable[bytes], tag: str) -> Iterator[merge_runs.Block[str, str]]:
    """Yield the timestamps and the tagged lines of one file."""
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


def split_offsets(read_at: Callable[[int, int], bytes], size: int, stamps: Iterable[str]) -> list[int]:
    """Return the offsets at which a file reaches each timestamp, so that parts of it can be merged in parallel."""
    found = [0]
    for stamp in stamps:
        low, high = found[-1], size
        while high - low > _SEARCH_BYTES:
            middle = (low + high) // 2
            line = read_at(middle, _SEARCH_BYTES).partition(b"\n")[2]
            low, high = (middle, high) if line[:30].decode("latin-1") < stamp else (low, middle)
        found.append(_first_offset(read_at(low, 2 * _SEARCH_BYTES), low, found[-1], size, stamp))
    return [*found[1:], size]


def _first_offset(data: bytes, at: int, begin: int, size: int, until: str) -> int:
    # The first line of the data may be cut off.
    key = until.encode("latin-1")
    if at > begin:
        at += data.find(b"\n") + 1
        data = data.partition(b"\n")[2]
    for line in data.splitlines(keepends=True):
        if line[:30] >= key:
            return at
        at += len(line)
    return min(at, size)


def _block(data: bytes, tag: str) -> merge_runs.Block[str, str]:
    lines = data.decode("latin-1").split("\n")
    if not lines[-1]:
        lines.pop()
    keys = [*map(_stamp, lines)]
    if not _COMMON.issuperset(map(_head, lines)):
        return _parsed_block(lines, tag)
    return keys, [key + tag + line[40:] for key, line in zip(keys, lines, strict=True)]


def _parsed_block(lines: list[str], tag: str) -> merge_runs.Block[str, str]:
    parsed = [cri.parse(line.encode("latin-1")) for line in lines]
    keys = [cri.stamp(line.time_ns).decode() for line in parsed]
    texts = [line.text.decode("latin-1") for line in parsed]
    return keys, [key + tag + text for key, text in zip(keys, texts, strict=True)]
