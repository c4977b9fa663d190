"""What the end of a log shows of how the run ended."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import cached_property

from mpijob.diagnosis.logs.error_lines import (
    ABNORMAL,
    calls_itself_error,
    follows_failure,
    is_detail,
    is_fatal,
    is_handled,
    is_of_attempt,
    is_report,
    is_result,
    looks_wrong,
    points,
    says_something,
)
from mpijob.diagnosis.logs.help_box import boxes
from mpijob.diagnosis.logs.line_shapes import advances, new, shape, without_ranks_and_times

END_LINES = 12
WENT_ON_LINES = 8  # of other text after an error: more than its own report has
_FATAL_LINES = 30
_RESULT_LINES = 3
_IGNORED = b"Exception ignored in"
_SERIES_OF = 40
_FRAME = re.compile(rb"\s*(?:File \"|at |in |from |#|\[)")
_LAST_STEP = re.compile(
    rb"(?i)\b(?:step|epoch|iteration|iter|cycle|sweep|frame|chunk|batch|part|pass|stage|sample|file|tile)"
    rb"\s*[:=]?\s*(0*[1-9]\d*)\s*(?:of|/)\s*\1\b"
)
_VALUE = re.compile(rb"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?![\w.])")
_WORK = (
    rb"all|training|run|job|simulation|calculation|solver|benchmark|tests?|steps?|work|study|search|optimi[sz]ation"
    rb"|transfer|program|computation|analysis|workflow|build|tasks?|jobs|cases|samples|epochs?|attempt|pipeline"
    rb"|inference|evaluation|conversion|experiment|campaign|stage|script|everything|model|processing"
)
_BADLY = (
    rb"(?! (?:with|by|in|after) (?:an? |the )?(?:error|failure|signal)"
    rb"| with (?:(?:exit )?(?:code|status)[ :=]*)?-?[1-9]\d*\b(?! \w))"
)
_WELL = re.compile(
    rb"(?i)\b(?:(?:" + _WORK + rb")\b[^\n]{0,30}"
    rb"\b(?:finished|completed?|done|succeeded|ended)\b"
    + _BADLY
    + rb"|success(?:fully)?\b(?! (?:assigned|pulled))|job "
    rb"done|normal (?:termination|end|completion)\b"
    rb"|converged after|total wall time|all tests passed|\d+ passed\b(?!.{0,60}\bfailed)"
    rb"|\b(?:completed|finished|ended|stopped|terminated|exited) (?:normally|cleanly|correctly|without errors?|ok)\b"
    rb"|^OK\b(?: \(.*\))?$|out of bounds values : 0|exit(?:ed with)? (?:code|status) 0\b|finished:)"
    rb"|(?:^|[ :])(?:done|finished|completed|end|(?<!not )converged)[.!]?\s*$"
)


class End:
    """The last lines of a log."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        self._said = _without_warnings(tuple(lines))
        self._last = _last(self._said)
        self._boxed = {
            at for box in boxes(self._said) if box.text for at in range(box.first - 1, box.last + 2)
        }

    @cached_property
    def shown(self) -> bool | None:
        """Whether they say that the run is complete (True) or show a failure; None for neither.

        The very last line decides: a program that reports its success after an error has handled it. An error after a
        report of success, where nothing else reports a failure, shows neither: stderr may come late. Nor does an error
        after which the output goes on.
        """
        well = [_reports_success(line) for line in self._last]
        if well and (well[-1] or _reports_success(self._said[-1])):
            return True
        wrong = any(map(_is_wrong, self._last))
        if any(well) and not any(map(follows_failure, self._last)):
            return None if wrong else True
        if wrong:
            return False if self._fails else None
        return True if any(map(_WELL.search, self._last)) else None

    @property
    def went_on(self) -> bool:
        """Whether they do not show the outcome, but an error and then a result, a success or further work."""
        if not self._last or self.shown is not None:
            return False
        further = self._advanced or any(map(_is_complete, self._last))
        return is_result(self._said[-1]) or (further and looks_wrong(self._last))

    @property
    def restarted(self) -> bool:
        """Whether the last error is that of an attempt, and output follows it."""
        return bool(self._after) and is_of_attempt(self._said[self._worst])

    @cached_property
    def _fails(self) -> bool:
        """Whether the last lines, some of which look wrong, are those of a run that failed."""
        if self._advanced:
            return False
        if self._reported or any(map(is_fatal, self._lines_but_details[-_FATAL_LINES:])):
            return True
        if any(map(_is_complete, self._last)) or is_result(self._said[-1]) or self._new:
            return False
        return any(map(calls_itself_error, self._last)) or not (self._has_results or self._differs)

    @property
    def _lines_but_details(self) -> list[bytes]:
        return [line for line in self._said if is_fatal(line) or not is_detail(line)]

    @property
    def _reported(self) -> bool:
        """Whether a launcher or a run time reports a failure near the end."""
        if self._worst >= 0 and len(self._after) >= WENT_ON_LINES:
            return False
        of_box = bool(self._boxed) and max(self._boxed) >= len(self._said) - END_LINES
        return of_box or any(map(is_report, self._last))

    @cached_property
    def _worst(self) -> int:
        """Where the last line stands that looks wrong; -1 for none."""
        wrong = (at for at, line in enumerate(self._said) if at in self._boxed or _is_wrong(line))
        return max(wrong, default=-1)

    @cached_property
    def _after(self) -> list[bytes]:
        """The normal lines after it."""
        return [line for line in self._said[self._worst + 1 :] if _is_output(line)]

    @cached_property
    def _new(self) -> list[bytes]:
        """What is said after the last error, and was not before; of an error of several ranks, after the first one."""
        return [] if self._worst < 0 or is_detail(self._said[-1]) else new(*self._around)

    @property
    def _around(self) -> tuple[list[bytes], list[bytes]]:
        """The normal lines after the last error, of several ranks after the first of them, and all lines before it."""
        same = shape(self._said[self._worst])
        first = next(at for at, line in enumerate(self._said) if shape(line) == same)
        after = [line for line in self._said[first + 1 :] if _is_output(line) and not _is_wrong(line)]
        return after, self._said[:first]

    @property
    def _differs(self) -> bool:
        """Whether anything was written after the last error that was not before."""
        after, before = self._around
        earlier = b"\n".join(
            map(shape, before)
        )  # where ranks write at the same time, several lines stand in one
        return any(shape(line) not in earlier for line in after)

    @property
    def _advanced(self) -> bool:
        """Whether the work advanced after the last error: by a further line of a series, or of a further attempt.

        What a launcher reports is the last error, but for one that starts its ranks again.
        """
        if self.restarted:
            return True
        if self._reported or is_detail(self._said[-1]):
            return False
        before = self._said[: max(0, self._worst)]
        return self._worst >= 0 and any(advances(line, before) for line in self._after)

    @property
    def _has_results(self) -> bool:
        """Whether the program wrote several values: one that fails at its start writes none, or its settings."""
        lines = {
            without_ranks_and_times(line) for line in self._said if _is_output(line) and not _is_wrong(line)
        }
        return sum(bool(_VALUE.search(line)) for line in lines) >= _RESULT_LINES


def _without_warnings(lines: tuple[bytes, ...]) -> list[bytes]:
    """Return the lines that are not empty, without what only warns: boxes of MPI, exceptions that Python ignores."""
    harmless = {at for box in boxes(lines) if not box.text for at in range(box.first - 1, box.last + 2)}
    ignored = 0  # exceptions that are announced as ignored, and follow
    for at, line in enumerate(lines):
        ignored += _IGNORED in line
        if ignored and at not in harmless and calls_itself_error(line):
            harmless.add(at)
            ignored -= 1
    return [line for at, line in enumerate(lines) if line.strip() and at not in harmless]


def _is_wrong(line: bytes) -> bool:
    return (points(line) >= ABNORMAL and not is_handled(line)) or is_report(line)


def _is_output(line: bytes) -> bool:
    return says_something(line) and not is_detail(line)


def _last(said: list[bytes]) -> list[bytes]:
    series = _series(said)
    return ([line for line in said if not is_detail(line) or line in series or looks_wrong((line,))] or said)[
        -END_LINES:
    ]


def _series(said: list[bytes]) -> frozenset[bytes]:
    """Return the last lines that differ in numbers only: output of steps, also where a program indents it."""
    late = [(line, shape(line)) for line in said[-_SERIES_OF:] if not _FRAME.match(line)]
    often = Counter(same for _, same in late)
    return frozenset(line for line, same in late if often[same] >= WENT_ON_LINES)


def _reports_success(line: bytes) -> bool:
    return bool(_WELL.search(line)) and not looks_wrong((line,))


def _is_complete(line: bytes) -> bool:
    return bool(_LAST_STEP.search(line)) or _reports_success(line)
