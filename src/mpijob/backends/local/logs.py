"""Reading the CRI log files of a job: stored, or live while they grow.

Who said a line is known from the file's name, which the job's own processes never choose.
"""

from __future__ import annotations

import os
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from pathlib import Path

from mpijob.backends.local.clock import Clock
from mpijob.model import LogLine, LogQuery, RankState, Role
from mpijob.observation import cri, filters, merge

_NAME = re.compile(r"(launcher|worker|rank)(?:-([0-9]+))?\.log")
_CHUNK = 1 << 18
_QUICK_SECONDS, _CALM_SECONDS = 0.01, 0.05
_LIVELY_SECONDS = 0.5
HOLD_NS = 25_000_000  # one machine, one clock: lines are late by the workers' scheduling only


class Source:
    """One log file and how far it has been read."""

    def __init__(self, path: Path, attempt: int, worker_of: Mapping[int, int]) -> None:
        match = _NAME.fullmatch(path.name)
        assert match is not None
        self.path = path
        self._role = Role(match[1])
        self._number = int(match[2]) if match[2] else None
        self._attempt = attempt
        self._worker_of = worker_of
        self._parser = cri.Parser()
        self._offset = 0

    def read(self) -> Iterator[LogLine]:
        """Yield what was written since the last time."""
        if os.stat(self.path).st_size == self._offset:
            return
        with self.path.open("rb") as file:
            file.seek(self._offset)
            while chunk := file.read(_CHUNK):
                self._offset += len(chunk)
                for parsed in self._parser.feed(chunk):
                    yield self._line(parsed)

    def last(self, count: int) -> Iterator[LogLine]:
        """Yield the last lines only, reading no more than the file's end."""
        with self.path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - count * 4096))
            if size > count * 4096:
                file.readline()
            lines = deque(file, maxlen=count)
        for raw in lines:
            yield self._line(cri.parse(raw))

    def _line(self, parsed: cri.Parsed) -> LogLine:
        rank = self._number if self._role is Role.RANK else None
        worker = self._worker_of.get(rank) if rank is not None else self._number
        return LogLine(
            parsed.time_ns,
            parsed.text,
            self._role,
            parsed.stream,
            worker,
            rank,
            self._attempt,
            parsed.partial,
        )


def speaker(file: str) -> tuple[Role, int | None] | None:
    """Return who speaks in a log file, by its name; None for another file."""
    match = _NAME.fullmatch(file)
    return None if match is None else (Role(match[1]), int(match[2]) if match[2] else None)


def sources(directory: Path, attempt: int, worker_of: Mapping[int, int]) -> list[Source]:
    """Return the log files of one attempt."""
    if not directory.is_dir():
        return []
    paths = sorted(path for path in directory.iterdir() if _NAME.fullmatch(path.name))
    return [Source(path, attempt, worker_of) for path in paths]


def workers_of(ranks: Iterable[RankState]) -> dict[int, int]:
    """Return rank → worker as the census found it."""
    return {state.rank: state.worker for state in ranks}


def tails(directory: Path, attempt: int, ranks: Mapping[int, RankState], count: int) -> Iterator[LogLine]:
    """Yield the last lines of every stream, merged."""
    found = sources(directory, attempt, workers_of(ranks.values()))
    return merge.merged([source.last(count) for source in found])


def stored(
    attempts: Iterable[tuple[Path, int]], worker_of: Mapping[int, int], query: LogQuery
) -> Iterator[LogLine]:
    """Yield the wanted lines of finished attempts, one attempt after the other."""
    found = [source for path, attempt in attempts for source in sources(path, attempt, worker_of)]
    wanted = [source.read() for source in found if _wanted(source, query)]
    return filters.select(merge.merged(wanted), query)


def _wanted(source: Source, query: LogQuery) -> bool:
    """Leave out files that cannot hold a wanted line."""
    if query.roles and source._role not in query.roles:
        return False
    return not (query.ranks and (source._role is not Role.RANK or source._number not in query.ranks))


async def followed(
    where: Callable[[], tuple[Iterable[tuple[Path, int]], Mapping[int, int], bool]],
    query: LogQuery,
    pause: Callable[[float], Awaitable[None]],
) -> AsyncIterator[LogLine]:
    """Yield lines as they come until `where` says that the job is over and all is read.

    `where` gives the attempts' directories, rank → worker, and whether the job has ended.
    """
    known: dict[Path, Source] = {}
    clock = Clock()
    lively = time.monotonic()
    merger = merge.Merger(HOLD_NS)
    wanted = filters.predicate(query)
    while True:
        attempts, worker_of, over = where()
        for path, attempt in attempts:
            for source in sources(path, attempt, worker_of):
                if source.path not in known and _wanted(source, query):
                    known[source.path] = source
        for source in known.values():
            source._worker_of = worker_of
            for line in source.read():
                merger.push(line)
        ready = merger.drain() if over else merger.ready(clock.now_ns())
        for line in ready:
            if wanted(line):
                yield line
        if over:
            return
        now = time.monotonic()
        lively = now if ready else lively
        await pause(_QUICK_SECONDS if now - lively < _LIVELY_SECONDS else _CALM_SECONDS)
