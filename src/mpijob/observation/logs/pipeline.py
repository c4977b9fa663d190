"""Applies a LogQuery to a stream of lines: filters, joins and folds them line by line.

The same stages serve stored and live logs: lines go in one by one, and selected lines come out, some of them
later. `filters` tests single lines, `folding` combines lines, and `live_merge` orders them. The caller passes
the time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from msgspec.structs import replace

from mpijob.model import Level, LogLine, LogQuery, Mark
from mpijob.observation.logs import filters
from mpijob.observation.logs.folding import LineFolder, RepeatFolder

_CONTINUATIONS = (b" ", b"\t", b"}", b"]", b")")


class Stage(Protocol):
    """One step of the pipeline."""

    def feed(self, line: LogLine) -> Iterable[LogLine]:
        """Return what this line releases."""

    def rest(self, now_ns: int | None) -> Iterable[LogLine]:
        """Return lines that were held long enough; all of them without a time."""


class LogPipeline:
    """All stages of a query, in order."""

    def __init__(self, query: LogQuery) -> None:
        self._is_wanted = filters.sources(query)
        self._stages: list[Stage] = list(_stages(query))

    @property
    def plain(self) -> bool:
        """Whether lines pass one by one and unchanged, or not at all."""
        return not self._stages

    def feed(self, line: LogLine) -> Iterable[LogLine]:
        """Return the lines that this one completes."""
        if not self._is_wanted(line):
            return ()
        return self._pass_through(0, (line,)) if self._stages else (line,)

    def rest(self, now_ns: int | None = None) -> Iterator[LogLine]:
        """Yield lines that were held long enough; all of them at the end of the stream (`now_ns` is None)."""
        for at, stage in enumerate(self._stages):
            yield from self._pass_through(at + 1, stage.rest(now_ns))

    def history(self, lines: Iterable[LogLine], tail: int | None) -> Iterator[LogLine]:
        """Yield the selected stored lines, before the live ones; the last ones may still be held."""
        if tail is None:
            for line in lines:
                yield from self.feed(line)
            return
        # Folding comes after the tail: the tail counts lines as written.
        unfolded = [stage for stage in self._stages if not isinstance(stage, RepeatFolder)]
        held, self._stages = self._stages, unfolded
        chosen = deque((out for line in lines for out in self.feed(line)), maxlen=max(0, tail))
        self._stages = held
        folds = [stage for stage in held if isinstance(stage, RepeatFolder)]
        for line in chosen:
            yield from folds[0].feed(line) if folds else (line,)

    def live(self, lines: Iterable[LogLine], now_ns: int | None) -> Iterator[LogLine]:
        """Yield the lines that these lines complete, and those that were held long enough; all without a time."""
        for line in lines:
            yield from self.feed(line)
        if self._stages:
            yield from self.rest(now_ns)

    def _pass_through(self, first: int, lines: Iterable[LogLine]) -> Iterable[LogLine]:
        for stage in self._stages[first:]:
            lines = [out for line in lines for out in stage.feed(line)]
            if not lines:
                return ()
        return lines


def select(lines: Iterable[LogLine], query: LogQuery) -> Iterator[LogLine]:
    """Yield the selected lines of a stored stream; with `tail`, only the last ones."""
    # The last lines are counted before they are folded.
    if query.tail is not None:
        chosen = deque(select(lines, replace(query, tail=None, fold=False)), maxlen=max(0, query.tail))
        return _folded(chosen, query.fold)
    pipeline = LogPipeline(query)
    return filter(pipeline._is_wanted, lines) if pipeline.plain else _run(lines, pipeline)


def _run(lines: Iterable[LogLine], pipeline: LogPipeline) -> Iterator[LogLine]:
    for line in lines:
        yield from pipeline.feed(line)
    yield from pipeline.rest()


def _folded(lines: Iterable[LogLine], fold: bool) -> Iterator[LogLine]:
    if not fold:
        yield from lines
        return
    stage = RepeatFolder()
    for line in lines:
        yield from stage.feed(line)
    yield from stage.rest(None)


def _stages(query: LogQuery) -> Iterator[Stage]:
    if query.tidy:
        yield LineFolder(live=query.follow)
    if query.level or query.regex:
        yield ContextFilter(_test(query), query.before, query.after)
    if query.find:
        yield MatchMarker(filters.compile_search(query.find))
    if query.fold:
        yield RepeatFolder()


def _test(query: LogQuery) -> filters.Predicate:
    search = filters.compile_search(query.regex) if query.regex else None
    level = LevelFilter(query.level) if query.level else None

    def is_selected(line: LogLine) -> bool:
        # Called for every line, because its result depends on earlier lines.
        if level is not None and not level(line):
            return False
        return search is None or search(line.text)

    return is_selected


class LevelFilter:
    """Selects lines of a level or above; a line without a level may continue the previous one."""

    def __init__(self, least: Level) -> None:
        self._least = least.weight
        self._last: dict[tuple[object, ...], bool] = {}

    def __call__(self, line: LogLine) -> bool:
        """Return whether a line is selected; it must be called for every line of a source, in order."""
        source = (line.role, line.worker, line.rank, line.attempt, line.stream)
        level = line.level
        if level is None and not (line.text.startswith(_CONTINUATIONS) or Mark.GAP in line.marks):
            self._last.pop(source, None)
            return False
        if level is not None:
            self._last[source] = level.weight >= self._least
        return Mark.GAP in line.marks or self._last.get(source, False)


class ContextFilter:
    """Selects lines that pass a test, with a number of lines before and after each."""

    def __init__(self, test: Callable[[LogLine], bool], before: int, after: int) -> None:
        self._test = test
        self._around = before > 0 or after > 0
        self._after = after
        self._before: deque[LogLine] = deque(maxlen=max(0, before))
        self._left = 0
        self._skipped = False
        self._has_shown = False

    def feed(self, line: LogLine) -> Iterable[LogLine]:
        """Return the line if it is selected or next to a selected one."""
        selected = self._test(line)
        if not self._around:
            return (line,) if selected else ()
        if selected:
            self._left = self._after
            shown = [*(_marked(old, Mark.CONTEXT) for old in self._before), _marked(line, Mark.MATCH)]
            self._before.clear()
            return self._with_gap_mark(shown)
        if self._left > 0:
            self._left -= 1
            return (_marked(line, Mark.CONTEXT),)
        self._skipped |= len(self._before) == self._before.maxlen
        self._before.append(line)
        return ()

    def rest(self, now_ns: int | None) -> Iterable[LogLine]:
        """Return nothing: held lines are only context."""
        return ()

    def _with_gap_mark(self, shown: list[LogLine]) -> list[LogLine]:
        # Marks the first line if lines between it and the last shown one were left out.
        if self._skipped and self._has_shown:
            shown[0] = _marked(shown[0], Mark.APART)
        self._skipped, self._has_shown = False, True
        return shown


class MatchMarker:
    """Marks the lines that match; returns all."""

    def __init__(self, search: filters.Search) -> None:
        self._search = search

    def feed(self, line: LogLine) -> Iterable[LogLine]:
        """Return the line, marked if it matches."""
        return (_marked(line, Mark.MATCH) if self._search(line.text) else line,)

    def rest(self, now_ns: int | None) -> Iterable[LogLine]:
        """Return nothing."""
        return ()


def _marked(line: LogLine, mark: Mark) -> LogLine:
    return line if mark in line.marks else replace(line, marks=(*line.marks, mark))
