"""What was said, searchable: one text per stream, with the way back to line, time and speaker.

Texts are bounded (the last MiB of a stream, 4 KiB of a line) and free of NUL. Nothing is decoded
until it is quoted, and quotes show control characters instead of passing them on.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import accumulate

import msgspec

from mpijob.diagnosis.evidence import Evidence, Window
from mpijob.diagnosis.logs.error_lines import (
    ABNORMAL,
    follows_failure,
    is_detail,
    of_launcher,
    points,
    says_something,
)
from mpijob.diagnosis.logs.help_box import boxes
from mpijob.diagnosis.logs.line_shapes import new
from mpijob.diagnosis.logs.terminal_text import plain
from mpijob.errors import Place
from mpijob.model import Event, LogLine, Role

_ABORTED = re.compile(rb"(?m)MPI_ABORT was invoked on rank|^(?:\S+ )?Abort\(-?\d+\) on node \d+ \(rank")

LINE_BYTES = 4096
STREAM_BYTES = 1 << 20
MOMENTS_SECONDS = 10.0  # before an end: what was said then may belong to it
_QUOTE = 300
SILENT = re.compile(rb"[\x00\s]*$|mpijob: this rank exits with ")  # no words of the program's own
_Speaker = tuple[Role, int | None, int | None, str]


class Stream:
    """The lines of one speaker on one stream that follow each other, joined."""

    def __init__(self, window: Window) -> None:
        self.role, self.rank, self.worker = window.role, window.rank, window.worker
        self.after = window.after
        cleaned = tuple(plain(line)[:LINE_BYTES].replace(b"\x00", b"").rstrip() for line in window.lines)
        self.window = msgspec.structs.replace(window, lines=cleaned)
        self._starts = [0]
        for text in cleaned:
            self._starts.append(self._starts[-1] + len(text) + 1)
        self.text = b"\n".join(cleaned)

    @property
    def count(self) -> int:
        """How many lines it has."""
        return len(self.window.lines)

    def at(self, offset: int) -> int:
        """Return the number of the line that holds an offset of the text, counted from 0 here."""
        return min(bisect_right(self._starts, offset), self.count) - 1

    def by_launcher(self, line: int) -> bool:
        """Return whether a line is a launcher's or a library's report: it is in a box, or of their form."""
        text = self.window.lines[line]
        return line in self._boxed or follows_failure(text) or of_launcher(text)

    def normal_after(self, line: int) -> int:
        """Return how many lines of normal output the speaker wrote after a line."""
        return self._normal_from[line + 1] + self.after

    @cached_property
    def aborted(self) -> bool:
        """Whether MPI or a launcher reports that a rank let it end all."""
        return bool(_ABORTED.search(self.text))

    def new_after(self, first: int, last: int) -> bool:
        """Return whether the speaker wrote something else after some lines than before them, and in all of them."""
        lines = self.window.lines
        return bool(new((lines[at] for at in range(last + 1, self.count) if self._normal[at]), lines[:first]))

    @cached_property
    def _boxed(self) -> frozenset[int]:
        return frozenset(at for box in boxes(self.window.lines) for at in range(box.first - 1, box.last + 2))

    @cached_property
    def _normal(self) -> tuple[bool, ...]:
        """Whether each line is normal output."""
        return tuple(
            not self.by_launcher(at)
            and points(text) < ABNORMAL
            and not is_detail(text)
            and says_something(text)
            for at, text in enumerate(self.window.lines)
        )

    @cached_property
    def _normal_from(self) -> tuple[int, ...]:
        return tuple(accumulate(reversed(self._normal), initial=0))[::-1]

    def time(self, line: int) -> float:
        """Return when a line was said, in seconds."""
        return self.window.times[line] / 1e9

    def place(self, line: int) -> Place:
        """Return where a line stands, for people to look it up."""
        window = self.window
        number = window.numbers[line] if window.numbers else 0
        dated = window.times[line] / 1e9 if window.times[line] > 1e17 else 0.0  # else: order only
        role = "" if window.file and window.rank is None and window.worker is None else window.role.value
        return Place(role, window.worker, window.rank, window.stream, window.file, number, dated)

    def quote(self, first: int, last: int) -> tuple[str, ...]:
        """Return some lines as `Rank-1 stderr: text`, ready to show."""
        chosen = range(max(0, first), min(last + 1, self.count))
        return tuple(self._quoted(at) for at in chosen if self.window.lines[at].strip(b"\x00 \r\n"))

    def _quoted(self, at: int) -> str:
        window = self.window
        if window.file:
            who = f"{source(window)}, " if window.rank is not None or window.worker is not None else ""
            line = f":{window.numbers[at]}" if window.numbers[at] else ""
            return f"{who}{window.file}{line}: {shown(window.lines[at])}"
        return f"{source(window)} {window.stream}: {shown(window.lines[at])}"


def streams(seen: Evidence) -> list[Stream]:
    """Return everything that was said, by speaker and stream, in order of its first line; events come last."""
    events = tuple(_as_line(event) for event in seen.events)
    return [Stream(window) for window in (*seen.windows, *_grouped(seen.logs), *_grouped(events))]


def _grouped(lines: Iterable[LogLine]) -> Iterator[Window]:
    groups: dict[_Speaker, list[LogLine]] = {}
    for line in lines:
        groups.setdefault((line.role, line.worker, line.rank, line.stream), []).append(line)
    for (role, worker, rank, stream), group in groups.items():
        kept = group[_bound(group) :]
        texts, times = tuple(line.text for line in kept), tuple(line.time for line in kept)
        yield Window(role, texts, (), times, stream, worker, rank)


def _as_line(event: Event) -> LogLine:
    text = f"{event.reason}: {event.message}".encode(errors="replace")
    role = Role.LAUNCHER if event.worker is None else Role.WORKER
    return LogLine(int(event.time * 1e9), text, role, "event", event.worker)


def source(line: LogLine | Window) -> str:
    """Return who said it, as people read it: `Rank-0`, `Worker-1`, `Launcher`."""
    if line.role is Role.RANK:
        return f"Rank-{line.rank}"
    return f"Worker-{line.worker}" if line.role is Role.WORKER else "Launcher"


def last_words(seen: Evidence, rank: int, ended: float) -> str | None:
    """Return what a rank said last: in the moments before its end, on stderr if it can be. It proves nothing."""
    mine = [line for line in seen.logs if line.rank == rank and not SILENT.match(line.text)]
    late = [line for line in mine if ended - line.time / 1e9 <= MOMENTS_SECONDS]
    errors = [line for line in mine if line.stream == "stderr"]
    chosen = [line for line in late if line in errors] or late or errors
    return (
        f"last line of {source(chosen[-1])} ({chosen[-1].stream}): {shown(chosen[-1].text)}"
        if chosen
        else None
    )


def shown(text: bytes) -> str:
    """Return text that is safe to show, shortened if it is long."""
    line = text.replace(b"\x00", b"").strip().decode("utf-8", "backslashreplace")
    safe = "".join(
        char if char.isprintable() or char == "\t" else ascii(char)[1:-1] for char in line[:_QUOTE]
    )
    return safe + "…" if len(line) > _QUOTE else safe


def _bound(lines: list[LogLine]) -> int:
    """Return where the last MiB of some lines begins."""
    total, first = 0, len(lines)
    while first and total < STREAM_BYTES:
        first -= 1
        total += min(len(lines[first].text), LINE_BYTES) + 1
    return first
