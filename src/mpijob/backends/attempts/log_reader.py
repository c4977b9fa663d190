"""Read the CRI log files of a job: stored, or live while they grow.

The source of a line is known from the file's name, which the job's own processes cannot choose. Merging and
filtering is done in `observation/logs`; the files are written by the engines.
"""

from __future__ import annotations

import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from mpijob.backends.attempts.clock import Clock
from mpijob.model import LogLine, LogQuery, Mark, RankState, Role
from mpijob.observation.logs import cri, live_merge, pipeline

_NAME = re.compile(r"(launcher|worker|rank)(?:-([0-9]+))?(?:\.step-([0-9]+))?\.log")
_FIRST_CHUNK, _CHUNK = 1 << 12, 1 << 16
# An estimate; if the lines are longer, more is read.
_LINE_BYTES = 256
# With `tidy`, up to this many stored lines may be joined to one.
_JOINED_LINES = 64
# How often files are read while lines arrive, and otherwise.
_BUSY_SECONDS, _QUIET_SECONDS = 0.01, 0.05
_BUSY_FOR_SECONDS = 0.5
# One machine has one clock: lines are late by the scheduling of processes only.
HOLD_NS = 25_000_000


class LogFileSource:
    """One log file and how far it has been read."""

    def __init__(self, path: Path, attempt: int, worker_of: Mapping[int, int]) -> None:
        parsed = parse_file_name(path.name)
        assert parsed is not None
        self.path = path
        self.attempt = attempt
        self._role, self._number, self._step = parsed
        self._worker_of = worker_of
        self._parser = cri.Parser()
        self._offset = 0
        self._reported_missing = False

    @property
    def label(self) -> str:
        """The prefix of its lines."""
        return self.line(b"").source

    def read(self) -> Iterator[LogLine]:
        """Yield the lines since the last call, up to the current end; a gap, once, if the file was removed."""
        try:
            end = os.stat(self.path).st_size
        except FileNotFoundError:
            yield from self._missing_file()
            return
        if end == self._offset:
            return
        size = _FIRST_CHUNK
        with self.path.open("rb", buffering=0) as file:
            file.seek(self._offset)
            while self._offset < end and (chunk := file.read(min(size, end - self._offset))):
                self._offset += len(chunk)
                size = min(4 * size, _CHUNK)
                for parsed in self._parser.feed(chunk):
                    yield self._line(parsed)

    def _missing_file(self) -> Iterator[LogLine]:
        if not self._reported_missing:
            self._reported_missing = True
            line = self._line(cri.parse(b""))
            reason = f"{self.path.name} was removed while it was read"
            yield gap_line(reason, time.time_ns(), line.role, line.worker, line.rank, self.attempt)

    def last(self, count: int) -> Iterator[LogLine]:
        """Yield the last lines only, reading no more than the file's end."""
        with self.path.open("rb") as file:
            size, window = file.seek(0, 2), count * 1024
            while True:
                file.seek(max(0, size - window))
                # The window begins within a line.
                if size > window:
                    file.readline()
                lines = deque(file, maxlen=count)
                if len(lines) == count or window >= size:
                    break
                window *= 8
        yield from map(self.line, lines)

    def skip_to_last(self, count: int) -> None:
        """Make `read` begin at the last `count` lines of the current content."""
        with suppress(FileNotFoundError), self.path.open("rb", buffering=0) as file:
            size, window = file.seek(0, 2), count * _LINE_BYTES
            while True:
                begin = max(0, size - window)
                file.seek(begin)
                found = file.read(size - begin)
                ends = found.count(b"\n")
                if ends > count or not begin:
                    break
                window *= 8
            self._offset = begin + _start_of_last(found, count) if ends > count else 0

    def line(self, raw: bytes) -> LogLine:
        """Parse a stored line of the file."""
        return self._line(cri.parse(raw))

    def may_match(self, query: LogQuery) -> bool:
        """Return whether the file can contain a matching line."""
        if query.roles and self._role not in query.roles:
            return False
        if query.steps and self._step not in query.steps:
            return False
        return not (query.ranks and (self._role is not Role.RANK or self._number not in query.ranks))

    def set_workers(self, worker_of: Mapping[int, int]) -> None:
        """Set the worker of each rank, as known by now: ranks write lines before their census is complete."""
        self._worker_of = worker_of

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
            self.attempt,
            parsed.partial,
            (),
            () if parsed.newline or parsed.partial else (Mark.OPEN,),
            self._step,
        )


def _start_of_last(data: bytes, count: int) -> int:
    """Return the offset of the last `count` complete lines."""
    offset = data.rfind(b"\n")
    for _ in range(count):
        offset = data.rfind(b"\n", 0, offset)
    return offset + 1


def gap_line(
    reason: str,
    time_ns: int,
    role: Role,
    worker: int | None = None,
    rank: int | None = None,
    attempt: int = 1,
) -> LogLine:
    """Return the line that is shown where lines are missing."""
    # Imported here because gaps are rare, and commands must start quickly.
    from mpijob.history.records import Gap

    text = Gap(first_ns=time_ns, last_ns=time_ns, reason=reason).format_message().encode()
    return LogLine(time_ns, text, role, "stderr", worker, rank, attempt, marks=(Mark.GAP,))


def parse_file_name(name: str) -> tuple[Role, int | None, int | None] | None:
    """Return role, number and step of a log file; None for any other file."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    number, step = (int(digits) if digits else None for digits in match.group(2, 3))
    return Role(match[1]), number, step


def sources(directory: Path, attempt: int, worker_of: Mapping[int, int]) -> list[LogFileSource]:
    if not directory.is_dir():
        return []
    paths = sorted(path for path in directory.iterdir() if parse_file_name(path.name))
    return [LogFileSource(path, attempt, worker_of) for path in paths]


def workers_of(ranks: Iterable[RankState]) -> dict[int, int]:
    """Return the worker of each rank, from the census."""
    return {state.rank: state.worker for state in ranks}


def tails(directory: Path, attempt: int, ranks: Mapping[int, RankState], count: int) -> Iterator[LogLine]:
    """Yield the last `count` lines of every log file of an attempt, merged."""
    found = sources(directory, attempt, workers_of(ranks.values()))
    return live_merge.merged([source.last(count) for source in found])


def read_stored(
    attempts: Iterable[tuple[Path, int]], worker_of: Mapping[int, int], query: LogQuery
) -> Iterator[LogLine]:
    """Yield the matching lines of finished attempts, one attempt after the other."""
    found = matching_sources(attempts, worker_of, query)
    count = _tail_lines(query)
    lines = [source.read() if count is None else source.last(count) for source in found]
    return pipeline.select(live_merge.merged(lines), query)


def _tail_lines(query: LogQuery) -> int | None:
    """Return how many lines from the end of each file are enough; None if whole files must be read."""
    # Any filter may reject lines, so that more would be needed.
    if query.tail is None or not reads_whole_files(replace(query, tail=None)):
        return None
    return query.tail + (_JOINED_LINES if query.tidy else 0)


def matching_sources(
    attempts: Iterable[tuple[Path, int]], worker_of: Mapping[int, int], query: LogQuery
) -> list[LogFileSource]:
    """Return the log files that can contain a matching line."""
    found = [source for path, attempt in attempts for source in sources(path, attempt, worker_of)]
    return [source for source in found if source.may_match(query)]


def reads_whole_files(query: LogQuery) -> bool:
    """Return whether every line matches of each file that may contain a matching line."""
    filtered = (
        query.regex or query.level or query.streams or query.since or query.until or query.tail is not None
    )
    # The worker of a rank is not in its file's name.
    return not filtered and not query.workers


def follow(
    locate: Callable[[], tuple[Iterable[tuple[Path, int]], Mapping[int, int], bool]],
    query: LogQuery,
    pause: Callable[[float], None],
) -> Iterator[LogLine]:
    """Yield lines as they are written, until the job has ended and all lines are read.

    `locate` returns the attempts' directories, the worker of each rank, and whether the job has ended.
    """
    known: dict[Path, LogFileSource] = {}
    clock, last_line_at = Clock(), time.monotonic()
    merger, log_pipeline = live_merge.Merger(HOLD_NS), pipeline.LogPipeline(query)
    attempts, worker_of, _ = locate()
    _update_sources(known, attempts, worker_of, query)
    if (count := _tail_lines(query)) is not None:
        for source in known.values():
            source.skip_to_last(count)
    existing = live_merge.merged([source.read() for source in known.values()])
    yield from log_pipeline.history(existing, query.tail)
    while True:
        # Before the files are read: of a job that has ended by now, all lines are written.
        attempts, worker_of, ended = locate()
        _update_sources(known, attempts, worker_of, query)
        for source in known.values():
            for line in source.read():
                merger.push(line)
        now_ns = clock.now_ns()
        ready = merger.drain() if ended else merger.ready(now_ns)
        yield from log_pipeline.live(ready, None if ended else now_ns)
        if ended:
            return
        now = time.monotonic()
        last_line_at = now if ready else last_line_at
        pause(_BUSY_SECONDS if now - last_line_at < _BUSY_FOR_SECONDS else _QUIET_SECONDS)


def _update_sources(
    known: dict[Path, LogFileSource],
    attempts: Iterable[tuple[Path, int]],
    worker_of: Mapping[int, int],
    query: LogQuery,
) -> None:
    """Add new files, and set what is known of the ranks by now."""
    for path, attempt in attempts:
        for source in sources(path, attempt, worker_of):
            if source.path not in known and source.may_match(query):
                known[source.path] = source
    for source in known.values():
        source.set_workers(worker_of)
