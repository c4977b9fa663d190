"""What was said, searchable: one text per stream, with the way back to line, time and speaker.

Texts are bounded (the last MiB of a stream, 4 KiB of a line) and free of NUL. Nothing is decoded
until it is quoted, and quotes show control characters instead of passing them on.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

from mpijob.model import LogLine, Role

LINE_BYTES = 4096
STREAM_BYTES = 1 << 20
_QUOTE = 300


class Stream:
    """The lines of one speaker on one stream, joined."""

    def __init__(self, lines: list[LogLine]) -> None:
        self.lines = lines
        self.role: Role = lines[0].role
        self.rank = lines[0].rank
        self.worker = lines[0].worker
        cleaned = [line.text[:LINE_BYTES].replace(b"\x00", b"").rstrip() for line in lines]
        self._starts = [0]
        for text in cleaned:
            self._starts.append(self._starts[-1] + len(text) + 1)
        self.text = b"\n".join(cleaned)

    def at(self, offset: int) -> int:
        """Return the number of the line that holds an offset of the text."""
        return min(bisect_right(self._starts, offset), len(self.lines)) - 1

    def quote(self, first: int, last: int) -> tuple[str, ...]:
        """Return some lines as `Rank-1 stderr: text`, ready to show."""
        return tuple(
            quoted(line) for line in self.lines[max(0, first) : last + 1] if line.text.strip(b"\x00 \r\n")
        )


def streams(lines: Iterable[LogLine]) -> list[Stream]:
    """Return the lines by speaker and stream, each within its bound, in order of their first line."""
    groups: dict[tuple[str, int | None, int | None, str], list[LogLine]] = {}
    for line in lines:
        groups.setdefault((line.role, line.worker, line.rank, line.stream), []).append(line)
    return [Stream(list(_bounded(group))) for group in groups.values()]


def quoted(line: LogLine) -> str:
    """Return one line for people: who said it and what, with nothing that a terminal would obey."""
    return f"{line.source} {line.stream}: {shown(line.text)}"


def shown(text: bytes) -> str:
    """Return text that is safe to show, shortened if it is long."""
    line = text.replace(b"\x00", b"").strip().decode("utf-8", "backslashreplace")
    safe = "".join(
        char if char.isprintable() or char == "\t" else ascii(char)[1:-1] for char in line[:_QUOTE]
    )
    return safe + "…" if len(line) > _QUOTE else safe


def _bounded(lines: list[LogLine]) -> Iterator[LogLine]:
    total, first = 0, len(lines)
    while first and total < STREAM_BYTES:
        first -= 1
        total += min(len(lines[first].text), LINE_BYTES) + 1
    yield from lines[first:]
