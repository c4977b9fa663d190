"""Reading the CRI log files of a job: stored, or live while they grow.

Who said a line is known from the file's name, which the job's own processes never choose.
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
_LINE_BYTES = 256  # a guess; where lines are longer, more is read
_PIECES = 64  # stored lines that may be put together to one, among the last that are wanted
_QUICK_SECONDS, _CALM_SECONDS = 0.01, 0.05
_LIVELY_SECONDS = 0.5
HOLD_NS = 25_000_000  # one machine, one clock: lines are late by the workers' scheduling only


class LogFileSource:
    """One log file and how far it has been read."""

    def __init__(self, path: Path, attempt: int, worker_of: Mapping[int, int]) -> None:
        who = parse_file_name(path.name)
        assert who is not None
        self.path = path
        self._role, self._number, self._step = who
        self._attempt = attempt
        self._worker_of = worker_of
        self._parser = cri.Parser()
        self._offset = 0
        self._told = False

    @property
    def label(self) -> str:
        """The prefix shown to people."""
        return self.line(b"").source

    @property
    def attempt(self) -> int:
        """The attempt that wrote it."""
        return self._attempt

    def read(self) -> Iterator[LogLine]:
        """Yield what was written since the last time, as far as the file reaches now; one that is gone is told once."""
        try:
            end = os.stat(self.path).st_size
        except FileNotFoundError:
            yield from self._gone()
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

    def _gone(self) -> Iterator[LogLine]:
        if not self._told:
            self._told = True
            said = self._line(cri.parse(b""))
            why = f"{self.path.name} was removed while it was read"
            yield gap_line(why, time.time_ns(), said.role, said.worker, said.rank, self._attempt)

    def last(self, count: int) -> Iterator[LogLine]:
        """Yield the last lines only, reading no more than the file's end."""
        with self.path.open("rb") as file:
            size, window = file.seek(0, 2), count * 1024
            while True:
                file.seek(max(0, size - window))
                if size > window:
                    file.readline()
                lines = deque(file, maxlen=count)
                if len(lines) == count or window >= size:
                    break
                window *= 8
        yield from map(self.line, lines)

    def skip_to_last(self, count: int) -> None:
        """Let `read` begin at the last lines that are there now."""
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
        """Return a stored line of the file."""
        return self._line(cri.parse(raw))

    def may_match(self, query: LogQuery) -> bool:
        """Return whether a wanted line can be in the file."""
        if query.roles and self._role not in query.roles:
            return False
        if query.steps and self._step not in query.steps:
            return False
        return not (query.ranks and (self._role is not Role.RANK or self._number not in query.ranks))

    def set_workers(self, worker_of: Mapping[int, int]) -> None:
        """Take in on which worker each rank is, as far as it is known by now."""
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
            self._attempt,
            parsed.partial,
            (),
            () if parsed.newline or parsed.partial else (Mark.OPEN,),
            self._step,
        )


def _start_of_last(data: bytes, count: int) -> int:
    """Return where the last `count` whole lines begin."""
    at = data.rfind(b"\n")
    for _ in range(count):
        at = data.rfind(b"\n", 0, at)
    return at + 1


def gap_line(
    why: str,
    time_ns: int,
    role: Role,
    worker: int | None = None,
    rank: int | None = None,
    attempt: int = 1,
) -> LogLine:
    """Return the line that stands where others are missing."""
    from mpijob.history.records import Gap  # rarely needed: start-up is a feature

    text = Gap(first_ns=time_ns, last_ns=time_ns, reason=why).format_message().encode()
    return LogLine(time_ns, text, role, "stderr", worker, rank, attempt, marks=(Mark.GAP,))


def parse_file_name(file: str) -> tuple[Role, int | None, int | None] | None:
    """Return who speaks in a log file by its name, with its number and its step; None for another file."""
    match = _NAME.fullmatch(file)
    if match is None:
        return None
    number, step = (int(one) if one else None for one in match.group(2, 3))
    return Role(match[1]), number, step


def sources(directory: Path, attempt: int, worker_of: Mapping[int, int]) -> list[LogFileSource]:
    """Return the log files of one attempt."""
    if not directory.is_dir():
        return []
    paths = sorted(path for path in directory.iterdir() if parse_file_name(path.name))
    return [LogFileSource(path, attempt, worker_of) for path in paths]


def workers_of(ranks: Iterable[RankState]) -> dict[int, int]:
    """Return rank → worker as the census found it."""
    return {state.rank: state.worker for state in ranks}


def tails(directory: Path, attempt: int, ranks: Mapping[int, RankState], count: int) -> Iterator[LogLine]:
    """Yield the last lines of every stream, merged."""
    found = sources(directory, attempt, workers_of(ranks.values()))
    return live_merge.merged([source.last(count) for source in found])


def read_stored(
    attempts: Iterable[tuple[Path, int]], worker_of: Mapping[int, int], query: LogQuery
) -> Iterator[LogLine]:
    """Yield the wanted lines of finished attempts, one attempt after the other."""
    found = matching_sources(attempts, worker_of, query)
    if query.tail is not None and reads_whole_files(replace(query, tail=None)):
        count = query.tail + (_PIECES if query.tidy else 0)
        return pipeline.select(live_merge.merged([source.last(count) for source in found]), query)
    return pipeline.select(live_merge.merged([source.read() for source in found]), query)


def matching_sources(
    attempts: Iterable[tuple[Path, int]], worker_of: Mapping[int, int], query: LogQuery
) -> list[LogFileSource]:
    """Return the log files that can hold a wanted line."""
    found = [source for path, attempt in attempts for source in sources(path, attempt, worker_of)]
    return [source for source in found if source.may_match(query)]


def reads_whole_files(query: LogQuery) -> bool:
    """Whether every line is wanted of every file that may hold one; workers are known line by line."""
    chosen = (
        query.regex or query.level or query.streams or query.since or query.until or query.tail is not None
    )
    return not chosen and not query.workers


def follow(
    where: Callable[[], tuple[Iterable[tuple[Path, int]], Mapping[int, int], bool]],
    query: LogQuery,
    pause: Callable[[float], None],
) -> Iterator[LogLine]:
    """Yield lines as they come until `where` says that the job is over and all is read.

    `where` gives the attempts' directories, rank → worker, and whether the job has ended.
    """
    known: dict[Path, LogFileSource] = {}
    clock, lively = Clock(), time.monotonic()
    merger, wanted = live_merge.Merger(HOLD_NS), pipeline.LogPipeline(query)
    attempts, worker_of, _ = where()
    _meet(known, attempts, worker_of, query)
    if query.tail is not None and reads_whole_files(replace(query, tail=None)):
        for source in known.values():
            source.skip_to_last(query.tail + (_PIECES if query.tidy else 0))
    for line in wanted.history(live_merge.merged([source.read() for source in known.values()]), query.tail):
        yield line
    while True:
        attempts, worker_of, over = where()
        _meet(known, attempts, worker_of, query)
        for source in known.values():
            for line in source.read():
                merger.push(line)
        now_ns = clock.now_ns()
        ready = merger.drain() if over else merger.ready(now_ns)
        for line in wanted.live(ready, None if over else now_ns):
            yield line
        if over:
            return
        now = time.monotonic()
        lively = now if ready else lively
        pause(_QUICK_SECONDS if now - lively < _LIVELY_SECONDS else _CALM_SECONDS)


def _meet(
    known: dict[Path, LogFileSource],
    attempts: Iterable[tuple[Path, int]],
    worker_of: Mapping[int, int],
    query: LogQuery,
) -> None:
    """Take in the files that are new, and what is known of the ranks by now."""
    for path, attempt in attempts:
        for source in sources(path, attempt, worker_of):
            if source.path not in known and source.may_match(query):
                known[source.path] = source
    for source in known.values():
        source.set_workers(worker_of)
