"""A LogQuery at work on a stream of lines: chosen, put together, folded, line by line.

The same stages serve what is stored and what is still being said: lines go in one by one, wanted lines come
out, some of them a moment later. `filters` says what a single line must be like; `folding` puts lines together;
the order of lines is the business of `live_merge`. The clock is the caller's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from msgspec.structs import replace

from mpijob.model import Level, LogLine, LogQuery, Mark
from mpijob.observation.logs import filters
from mpijob.observation.logs.folding import Fold, LineFolder

_GOES_ON = (b" ", b"\t", b"}", b"]", b")")


class Stage(Protocol):
    """One step on the way of a line."""

    def feed(self, line: LogLine) -> Iterable[LogLine]:
        """Return what this line releases."""

    def rest(self, now_ns: int | None) -> Iterable[LogLine]:
        """Return what has been held long enough; everything without a time."""


class LogPipeline:
    """All stages that a query needs, one behind the other."""

    def __init__(self, query: LogQuery) -> None:
        self._wanted = filters.sources(query)
        self._stages: list[Stage] = list(_stages(query))

    @property
    def plain(self) -> bool:
        """Whether lines pass one by one and unchanged, or not at all."""
        return not self._stages

    def feed(self, line: LogLine) -> Iterable[LogLine]:
        """Return the lines that this one releases."""
        if not self._wanted(line):
            return ()
        return self._through(0, (line,)) if self._stages else (line,)

    def rest(self, now_ns: int | None = None) -> Iterator[LogLine]:
        """Yield what has been held long enough; everything when there is no time, because all is said."""
        for at, stage in enumerate(self._stages):
            yield from self._through(at + 1, stage.rest(now_ns))

    def history(self, lines: Iterable[LogLine], tail: int | None) -> Iterator[LogLine]:
        """Yield what of the past is wanted, before what comes live; a moment of it may still be held."""
        if tail is None:
            for line in lines:
                yield from self.feed(line)
            return
        held, self._stages = self._stages, [stage for stage in self._stages if not isinstance(stage, Fold)]
        chosen = deque((out for line in lines for out in self.feed(line)), maxlen=max(0, tail))
        self._stages = held
        folds = [stage for stage in held if isinstance(stage, Fold)]
        for line in chosen:
            yield from folds[0].feed(line) if folds else (line,)

    def live(self, lines: Iterable[LogLine], now_ns: int | None) -> Iterator[LogLine]:
        """Yield what these lines release, and what has been held long enough; all of it without a time."""
        for line in lines:
            yield from self.feed(line)
        if self._stages:
            yield from self.rest(now_ns)

    def _through(self, first: int, lines: Iterable[LogLine]) -> Iterable[LogLine]:
        for stage in self._stages[first:]:
            lines = [out for line in lines for out in stage.feed(line)]
            if not lines:
                return ()
        return lines


def select(lines: Iterable[LogLine], query: LogQuery) -> Iterator[LogLine]:
    """Yield the wanted lines of a stored stream, only the last `tail` of them when that is set."""
    if query.tail is not None:  # the last of them, before they are folded
        chosen = deque(select(lines, replace(query, tail=None, fold=False)), maxlen=max(0, query.tail))
        return _folded(chosen, query.fold)
    sieve = LogPipeline(query)
    return filter(sieve._wanted, lines) if sieve.plain else _sieved(lines, sieve)


def _sieved(lines: Iterable[LogLine], sieve: LogPipeline) -> Iterator[LogLine]:
    for line in lines:
        yield from sieve.feed(line)
    yield from sieve.rest()


def _folded(lines: Iterable[LogLine], fold: bool) -> Iterator[LogLine]:
    if not fold:
        yield from lines
        return
    stage = Fold()
    for line in lines:
        yield from stage.feed(line)
    yield from stage.rest(None)


def _stages(query: LogQuery) -> Iterator[Stage]:
    if query.tidy:
        yield LineFolder(live=query.follow)
    if query.level or query.regex:
        yield Chosen(_test(query), query.before, query.after)
    if query.find:
        yield Found(filters.compile_search(query.find))
    if query.fold:
        yield Fold()


def _test(query: LogQuery) -> filters.Predicate:
    search = filters.compile_search(query.regex) if query.regex else None
    serious = Serious(query.level) if query.level else None

    def wanted(line: LogLine) -> bool:
        if serious is not None and not serious(
            line
        ):  # asked about every line: it remembers what was said before
            return False
        return search is None or search(line.text)

    return wanted


class Serious:
    """Whether a line is of a level or above; one that names none may go on with the line before it."""

    def __init__(self, least: Level) -> None:
        self._least = least.weight
        self._last: dict[tuple[object, ...], bool] = {}

    def __call__(self, line: LogLine) -> bool:
        """Return whether a line is serious enough; it is asked about every line of a source, in order."""
        source = (line.role, line.worker, line.rank, line.attempt, line.stream)
        level = line.level
        if level is None and not (line.text.startswith(_GOES_ON) or Mark.GAP in line.marks):
            self._last.pop(source, None)
            return False
        if level is not None:
            self._last[source] = level.weight >= self._least
        return Mark.GAP in line.marks or self._last.get(source, False)


class Chosen:
    """Lines that pass a test, with so many before and after each."""

    def __init__(self, test: Callable[[LogLine], bool], before: int, after: int) -> None:
        self._test = test
        self._around = before > 0 or after > 0
        self._after = after
        self._before: deque[LogLine] = deque(maxlen=max(0, before))
        self._left = 0
        self._skipped = False
        self._begun = False

    def feed(self, line: LogLine) -> Iterable[LogLine]:
        """Return the line if it is wanted or stands beside one that is."""
        wanted = self._test(line)
        if not self._around:
            return (line,) if wanted else ()
        if wanted:
            self._left = self._after
            shown = [*(_marked(old, Mark.CONTEXT) for old in self._before), _marked(line, Mark.MATCH)]
            self._before.clear()
            return self._apart(shown)
        if self._left > 0:
            self._left -= 1
            return (_marked(line, Mark.CONTEXT),)
        self._skipped |= len(self._before) == self._before.maxlen
        self._before.append(line)
        return ()

    def rest(self, now_ns: int | None) -> Iterable[LogLine]:
        """Nothing is held that is wanted."""
        return ()

    def _apart(self, shown: list[LogLine]) -> list[LogLine]:
        """Mark the first of them if lines between it and the last shown one were left out."""
        if self._skipped and self._begun:
            shown[0] = _marked(shown[0], Mark.APART)
        self._skipped, self._begun = False, True
        return shown


class Found:
    """Marks the lines that hold what is looked for; leaves none out."""

    def __init__(self, search: filters.Search) -> None:
        self._search = search

    def feed(self, line: LogLine) -> Iterable[LogLine]:
        """Return the line, marked when it holds it."""
        return (_marked(line, Mark.MATCH) if self._search(line.text) else line,)

    def rest(self, now_ns: int | None) -> Iterable[LogLine]:
        """Nothing is held."""
        return ()


def _marked(line: LogLine, mark: Mark) -> LogLine:
    return line if mark in line.marks else replace(line, marks=(*line.marks, mark))
