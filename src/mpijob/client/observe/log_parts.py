"""The log of a job in parts, one for each source, bounded: of a long one the beginning and the end are kept."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from mpijob.observation.logs.escape import visible

if TYPE_CHECKING:
    from mpijob.model import LogLine
    from mpijob.observation.redaction.bundle import BundleRedactor

_HEAD_SHARE = 0.25
_LONGEST_LINE = 16_384


class LogParts:
    """Takes lines in any order of sources and gives them back by source, within a number of bytes."""

    def __init__(self, most_bytes: int, seal: BundleRedactor) -> None:
        self._most = most_bytes
        self._seal = seal
        self._parts: dict[str, _Part] = {}

    def add(self, line: LogLine) -> None:
        """Take a line."""
        name = (
            f"{line.source.lower()}.log"
            if line.attempt == 1
            else f"{line.source.lower()}.attempt-{line.attempt}.log"
        )
        part = self._parts.get(name)
        if part is None:
            part = self._parts[name] = _Part()
            for other in self._parts.values():
                other.shrink(self._most // len(self._parts))
        part.add(_written(line, self._seal))

    def files(self) -> Iterator[tuple[str, str]]:
        """Yield each source's file and what is kept of it."""
        for name, part in sorted(self._parts.items()):
            yield f"logs/{name}", part.text()


class _Part:
    def __init__(self) -> None:
        self._head: list[str] = []
        self._tail: deque[str] = deque()
        self._head_bytes = self._tail_bytes = self._lost = 0
        self._most = 0

    def shrink(self, most: int) -> None:
        self._most = most
        while self._head and self._head_bytes > most * _HEAD_SHARE:
            line = self._head.pop()
            self._head_bytes -= len(line)
            self._tail.appendleft(line)
            self._tail_bytes += len(line)
        self._trim()

    def add(self, line: str) -> None:
        if not self._tail and self._head_bytes + len(line) <= self._most * _HEAD_SHARE:
            self._head.append(line)
            self._head_bytes += len(line)
            return
        self._tail.append(line)
        self._tail_bytes += len(line)
        self._trim()

    def _trim(self) -> None:
        while self._tail and self._tail_bytes > self._most * (1 - _HEAD_SHARE):
            self._tail_bytes -= len(self._tail.popleft())
            self._lost += 1

    def text(self) -> str:
        gap = [f"… {self._lost} lines are left out here\n"] if self._lost else []
        return "".join((*self._head, *gap, *self._tail))


def _written(line: LogLine, seal: BundleRedactor) -> str:
    """Return a line as it is kept; the beginning of a secret is none any more, so one that is cut is sealed before."""
    when = (
        datetime.fromtimestamp(line.time / 1e9, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )
    text = visible(line.text)
    if len(text) > _LONGEST_LINE:
        text = seal.ahead(text)[:_LONGEST_LINE]
    return f"{when} {line.stream} {text}\n"
